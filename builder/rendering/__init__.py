"""From a pair description to a model repository that Triton loads, and the line that starts it."""
