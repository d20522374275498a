"""The processes in which peers run. Each module needs the packages of its own peer only."""
