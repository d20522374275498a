"""`specdec serve`: find, configure, start, watch and stop tritonserver."""
