"""What each of our Triton models needs of Triton's Python backend."""
