"""The whole suite runs twice at the same time, with compiled kernels and without (tools/tests.py)."""

import os

import pytest

# For slow tests for which compiled CPU kernels make no difference.
once = pytest.mark.skipif(
    os.environ.get("TESTS_ONCE") == "elsewhere",
    reason="compiled kernels make no difference here: the run without them, beside this one, does this",
)
