"""`specdec build refresh`: train the served draft on, and put it in the old one's place."""
