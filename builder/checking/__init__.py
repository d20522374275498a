"""Can this pair be built, and will it pay? Checked before anything is downloaded or compiled.

`check_description` looks at a pair file alone; given checkpoints, also at their configuration,
weights and tokenizers. Each thing found is a `Finding`: what, why, and what to do.
"""

from builder.checking.check import Report, check_description
from builder.checking.findings import ERROR, NOTE, WARNING, Finding

__all__ = ["ERROR", "NOTE", "WARNING", "Finding", "Report", "check_description"]
