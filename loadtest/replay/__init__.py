"""The controller on recorded answers: a simulated server that answers as a real one did."""
