"""Build the drafter of each request, and report what happens to drafters."""
