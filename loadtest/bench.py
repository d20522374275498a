"""`specdec bench`: the module that the table of commands names."""

import sys

from specdec.loadtest.lab.benches import main

if __name__ == "__main__":
    sys.exit(main())
