"""Try to break a live server: `specdec bench reliability`.

Each scenario is a module with `rows(repository, rounds)`, which yields `Row`s. A row is one line of
the table in docs/reliability.md: the situation, the figure, the goal, and whether it was met.
"""
