"""Runs a PyTorch program on emulated GPUs: `python on_gpus.py program.py arguments`."""

import os
import runpy
import sys

from tests import emulator

emulator.install()

from tensorgrad import compat  # noqa: E402

compat.install()
sys.argv = sys.argv[1:]
sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
