"""`python -m headrace` is the command `headrace`."""

import sys

from headrace._cli import main

sys.exit(main())
