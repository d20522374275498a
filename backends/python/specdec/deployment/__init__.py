"""What is deployed: where engines run, which files and versions they have, whether they fit."""
