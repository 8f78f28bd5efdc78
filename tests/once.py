"""The whole suite runs twice at the same time, with compiled kernels and without (tools/tests.py)."""

import importlib.util
import os

import pytest

# For tests to which compiled kernels of the CPU make no difference, and that take long.
once = pytest.mark.skipif(
    os.environ.get("TENSORGRAD_FAST") == "0" and importlib.util.find_spec("numba") is not None,
    reason="compiled kernels are not for GPUs: the run that has them does this, once",
)
