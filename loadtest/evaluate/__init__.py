"""`specdec evaluate`: measure acceptance and gain by domain before anything is deployed."""
