"""The Triton model `specdec`: admits requests, runs the loop, and streams answers."""
