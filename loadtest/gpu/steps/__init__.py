"""The steps of the programme, one module each, run as `python -m loadtest.gpu.steps.NAME`."""
