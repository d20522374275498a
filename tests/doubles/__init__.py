"""Models that behave like NVIDIA's, so that what runs against those can be tested without them."""
