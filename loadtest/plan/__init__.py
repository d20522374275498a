"""`specdec plan`: predict what speculation would give, before anything is deployed."""
