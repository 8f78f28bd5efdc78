"""Post-local SGD: training with parameters that are averaged now and then, beside PyTorch."""

import importlib.util

import pytest

from tests.distributed.launch import HERE, needs_mpi, run

pytestmark = pytest.mark.together


@needs_mpi
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed: nothing to compare with")
def test_averaged_models_are_those_of_pytorch():
    printed = {
        lib: [output for _, output, _ in run(2, [HERE / "averaging.py", lib])] for lib in ("torch", "tensorgrad")
    }
    assert printed["tensorgrad"] == printed["torch"]
