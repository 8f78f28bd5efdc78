"""`python -m tensorgrad.capture show program.py`: see show.py."""

import sys

from tensorgrad.capture.show import main
from tensorgrad.system.command import run

if __name__ == "__main__":
    sys.path.pop(0)  # `-m` added this folder; the program should not see it
    run(main)
