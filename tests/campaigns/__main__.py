"""`python -m tests.campaigns`: see run.py. What has this name is not imported by ranks anew."""

import sys

from tests.campaigns.run import main

if __name__ == "__main__":
    sys.exit(main())
