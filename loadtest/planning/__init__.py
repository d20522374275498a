"""`specdec plan`: what speculation would come to, before anything is deployed."""
