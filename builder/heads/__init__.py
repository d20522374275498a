"""Training of draft heads that read the target's hidden states: EAGLE-3 and Medusa."""
