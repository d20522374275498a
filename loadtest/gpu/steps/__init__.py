"""The steps of a GPU run: modules, run as `python -m specdec.loadtest.gpu.steps.NAME`."""
