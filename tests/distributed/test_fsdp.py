"""Training with divided parameters."""

import pytest

from tests.distributed.launch import HERE, needs_mpi, run


@needs_mpi
@pytest.mark.parametrize("size", [2, 3, 4])
def test_fully_shard_trains_like_one_process(size):
    run(size, [HERE / "fsdp_cases.py"], timeout=120)


@needs_mpi
def test_fully_shard_with_tensor_parallelism_trains_like_one_process():
    run(4, [HERE / "fsdp_tensor_parallel.py"], timeout=120)


def test_fsdp_module_has_all_methods_of_pytorch():
    torch = pytest.importorskip("torch", reason="torch is not installed: nothing to compare with")
    from torch.distributed.fsdp import FSDPModule as theirs

    from tensorgrad.distributed.fsdp import FSDPModule as ours

    assert torch.distributed.is_available()
    assert not [name for name in vars(theirs) if not name.startswith("_") and not hasattr(ours, name)]


@needs_mpi
def test_training_on_gpus():
    """On emulated ones, which communicate by NCCL."""
    run(2, [HERE / "gpu_cases.py"], timeout=120, DEVICE="emulator")
