"""Load tests and measurements of the model `specdec`.

`load` is the load test that users run. `planning`, `evaluating` and `observe` answer users'
questions before and after a deployment. `lab`, `gpu` and `reliability` are this project's own
measurements, and `results` has the latest result of each.
"""
