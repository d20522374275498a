"""Derive the task of a request that names none, by rules on its words."""
