"""`python -m rehead …` and `torchrun … -m rehead …` do what `rehead …` does."""

import sys

from rehead.cli import main

if __name__ == "__main__":
    sys.exit(main())
