"""The steps of the programme: modules, run as `python -m specdec.loadtest.gpu.steps.NAME`."""
