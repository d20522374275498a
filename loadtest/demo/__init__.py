"""`make demo`: a short comparison of speculation on and off on a server of its own."""
