"""Rules that decide how much of a draft stands; pure functions of what the target says."""
