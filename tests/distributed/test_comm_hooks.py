"""Communication hooks give the weights that PyTorch's give."""

import numpy as np
import pytest

import tensorgrad as torch
from tensorgrad.distributed.algorithms.ddp_comm_hooks import DDPCommHookType, debugging_hooks, powerSGD_hook
from tests.distributed.launch import HERE, needs_mpi, run

ATOL = {"fp16": 2e-5, "bf16": 2e-4}  # a rounding to half precision may fall on the other side


def tolerance(name, dtype):
    if dtype == np.float64:
        return 1e-10
    return next((atol for word, atol in ATOL.items() if word in name), 2e-6)


@pytest.mark.together
@needs_mpi
def test_weights_are_those_of_pytorch(tmp_path):
    printed = {
        lib: [output for _, output, _ in run(2, [HERE / "comm_hooks.py", lib, tmp_path / lib])]
        for lib in ("torch", "tensorgrad")
    }
    assert printed["tensorgrad"] == printed["torch"]
    for rank in range(2):
        expected, found = (np.load(tmp_path / f"{lib}{rank}.npz") for lib in ("torch", "tensorgrad"))
        assert found.files == expected.files
        for name in expected.files:
            atol = tolerance(name, expected[name].dtype)
            np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=atol, err_msg=name)


def test_orthogonal_columns():
    for rank in (1, 2, 5):
        matrices = torch.randn(3, 8, rank, dtype=torch.float64)
        powerSGD_hook._orthogonalize(matrices)
        identity = torch.eye(rank, dtype=torch.float64).expand(3, -1, -1)
        torch.testing.assert_close(matrices.mT @ matrices, identity, rtol=0, atol=1e-12)
    zeros = torch.zeros(1, 4, 2)
    powerSGD_hook._orthogonalize(zeros)
    assert not zeros.any()


def test_wrong_settings():
    for options in ({"use_error_feedback": False}, {"warm_start": False}):
        with pytest.raises(ValueError, match="Expect `start_powerSGD_iter` > 1"):
            powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=1, **options)
    powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=0, use_error_feedback=False, warm_start=False)
    assert DDPCommHookType.NOOP.value.comm_hook is debugging_hooks.noop_hook
    with pytest.raises(TypeError, match="takes no options"):
        DDPCommHookType.NOOP.value(model=None, state=None, start_powerSGD_iter=3)
