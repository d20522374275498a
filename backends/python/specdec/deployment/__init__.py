"""Facts about the deployment: where engines run, their files, versions and weights."""
