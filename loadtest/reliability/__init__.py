"""Try to break a live server, and say what it took: `specdec bench reliability`.

Each scenario is a module with `run(scale) -> list[Row]`; a row is one line of the table in
docs/reliability.md, with its figure, its goal and whether the goal was met.
"""
