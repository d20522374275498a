"""The Triton models (orchestrator and engines), and `specdec serve`, which runs Triton."""
