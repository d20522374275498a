"""Load tests of the model `specdec`: Locust users, raw samples, measures, limits and reports."""
