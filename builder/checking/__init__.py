"""`specdec build check`: find out whether a pair can be built and will pay off, before building it.

`check_description` checks a pair file. If checkpoints are given, it also checks their
configuration, weights and tokenizers. Each `Finding` says what is wrong, why, and what to do.
"""

from specdec.builder.checking.check import Report, check_description
from specdec.builder.checking.findings import ERROR, NOTE, WARNING, Finding

__all__ = ["ERROR", "NOTE", "WARNING", "Finding", "Report", "check_description"]
