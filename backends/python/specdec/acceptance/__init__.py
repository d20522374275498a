"""The rules by which tokens are drawn and draft tokens are verified."""
