"""`specdec evaluate`: acceptance and gain by domain, measured before anything is deployed."""
