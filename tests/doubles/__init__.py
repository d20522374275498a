"""Doubles of NVIDIA's engine models, to test without them what calls them."""
