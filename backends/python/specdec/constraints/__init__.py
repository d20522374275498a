"""Constraints on an answer: JSON schemas, regular expressions and grammars.

A `Guide` is the constraint as a request gives it. `GuideCompiler` compiles it for a vocabulary, by
the library llguidance. A `Constraint` then says which tokens may follow the tokens of an answer.
"""
