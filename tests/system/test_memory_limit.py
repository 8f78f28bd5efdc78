"""At a limit of memory a program gets MemoryError, which it can catch, instead of its end."""

import sys

import pytest

from tests.support.processes import environment, run_python

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the limit counts mapped memory on Linux only")

PROGRAM = """
import resource
import tensorgrad as torch
from tensorgrad.storage import blas_memory

x = torch.ones(8, 16, 64, 64) + 0
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + {room} * 2**20,) * 2)
assert blas_memory.left() <= {room} * 2**20
w = torch.ones(32, 16, 3, 3)
try:
    print(torch.nn.functional.conv2d(x[:1, :, :8, :8], w, padding=1).sum().item())  # which always fits
    print(torch.nn.functional.conv2d(x, torch.ones({channels}, 16, 3, 3), padding=1).shape)
    print((torch.ones(64, 64) @ torch.ones(64, 64)).sum().item())
except MemoryError:
    print("MemoryError")
"""


@pytest.mark.parametrize(("room", "channels", "last"), [(4, 512, "MemoryError"), (24, 8, "262144.0")])
def test_a_convolution_at_a_limit_of_memory(room, channels, last):
    """With less left than OpenBLAS's buffer: what fits is computed, what does not raises."""
    done = run_python(PROGRAM.format(room=room, channels=channels), env=environment(TENSORGRAD_FAST="0"), timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split()[-1] == last
    assert "OpenBLAS error" not in done.stderr
