"""Helpers for all Triton models: tensors, responses, the log and the end of the process."""
