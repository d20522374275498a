"""Load tests and measurements of the model `specdec`.

`load` is the load test that users run. `plan`, `evaluate` and `report` answer users'
questions before and after a deployment. `lab`, `gpu` and `reliability` are this project's own
measurements, and `results` has the latest result of each.
"""
