"""`python -m specdec` is the `specdec` command."""

import sys

from specdec.cli import main

if __name__ == "__main__":
    sys.exit(main())
