"""`specdec bench`: our own measurements, each with its machine, commit and command.

A bench has its arms, its prompts and its figures. The parts that benches share (arms, alternation,
intervals, tables, the result file) are in `kit`.
"""
