"""The processes that peers run in. Each module needs the packages of its own peer alone."""
