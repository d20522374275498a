"""Prompts to tokens, and an answer's tokens to text."""
