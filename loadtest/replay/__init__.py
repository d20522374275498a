"""The controller against recorded traffic: a simulated server that answers as a real one did."""
