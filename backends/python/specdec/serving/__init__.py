"""What runs inside Triton, and the launcher that runs Triton."""
