"""`python -m loadtest.bench`."""

import sys

from loadtest.bench import main

sys.exit(main())
