"""`specdec load`: the module that the table of commands names."""

import sys

from specdec.loadtest.load.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
