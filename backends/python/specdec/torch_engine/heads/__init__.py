"""EAGLE-3 and Medusa heads, which draft from the target's hidden states."""
