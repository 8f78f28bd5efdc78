"""The whole suite runs twice at the same time, with compiled kernels and without (tools/tests.py)."""

import os

import pytest

# For tests to which compiled kernels of the CPU make no difference, and that take long.
once = pytest.mark.skipif(
    os.environ.get("TESTS_ONCE") == "elsewhere",
    reason="compiled kernels are not for GPUs: the run without them, beside this one, does this",
)
