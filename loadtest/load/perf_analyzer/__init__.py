"""Compares our load test with Triton's own load tool, `perf_analyzer`."""
