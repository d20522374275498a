"""`specdec build refresh`: trains the served draft further and replaces it on running servers."""
