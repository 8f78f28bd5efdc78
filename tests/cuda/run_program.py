"""Runs a program of tests/programs on the CPU, then on the GPU, and prints the losses of both as JSON.

    DEVICE=cuda python -m tests.cuda.run_program mlp 20

On the GPU its random numbers are the CPU's (tests/support/device.py), so the losses agree as far as rounding lets them.
"""

import json
import sys
import warnings

from tests.support import device

device.install()

import tensorgrad
from tensorgrad import compat
from tests.run_programs import PROGRAMS, load


def main(name: str, steps: str) -> None:
    (path,) = [path for path in PROGRAMS if path.stem == name]
    compat.install()
    there, tensorgrad.cuda.is_available = tensorgrad.cuda.is_available, lambda: False
    losses = [load(path).main(int(steps))]
    tensorgrad.cuda.is_available = there
    tensorgrad.cuda.init()
    before = tensorgrad.cuda.memory_stats()["allocation.all.allocated"]
    with device.tensors_there():
        losses.append(load(path).main(int(steps)))
    used = tensorgrad.cuda.memory_stats()["allocation.all.allocated"] - before
    print(json.dumps([*losses, used]))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(*sys.argv[1:])
