"""Try to break a live server: `specdec bench reliability`.

Each scenario is a module of `scenarios/` with `rows(repository, rounds)`, which yields `Row`s. A
row is one line of the table of results: scenario, figure, goal, and whether the goal was met.
"""
