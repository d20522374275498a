"""Rules for drawing tokens and for verifying draft tokens."""
