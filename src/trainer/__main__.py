"""`python -m trainer`."""

import sys

from trainer.cli import program

if __name__ == "__main__":
    sys.exit(program())
