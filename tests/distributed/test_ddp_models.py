"""DistributedDataParallel trains models as PyTorch's does with Gloo, from the same seed."""

import importlib.util
import json

import numpy as np
import pytest

from tests.distributed.launch import HERE, needs_mpi, run

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
DYING = """
import json, os, tensorgrad as torch, tensorgrad.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(5, 400), torch.nn.Linear(400, 3)))
for step in range(3):
    loss = model(torch.ones(2, 5)).sum()
    if step == 1 and dist.get_rank() == 1:
        model.module[1].weight.register_hook(lambda grad: os._exit(3))
    try:
        loss.backward()
    except Exception as error:
        print(json.dumps([type(error).__name__, str(error)]), flush=True)
        store = dist.group.WORLD.get_group_store()
        store.set(f"seen by {dist.get_rank()}", "1")  # who leaves earlier would be missing, too
        store.wait(["seen by 0", "seen by 2"])
        os._exit(0)
"""


@pytest.mark.together
@needs_mpi
@needs_torch
def test_models_train_as_under_torch(tmp_path):
    for library in ("torch", "tensorgrad"):
        run(2, [HERE / "ddp_models.py", library, tmp_path / library])
    for rank in range(2):
        ours, theirs = (np.load(tmp_path / f"{library}{rank}.npz") for library in ("tensorgrad", "torch"))
        assert set(ours.files) == set(theirs.files)
        for name in theirs.files:
            tolerance = 2e-2 if name.startswith("autocast") else 2e-3 if name.startswith("builtin") else 2e-5
            np.testing.assert_allclose(ours[name], theirs[name], rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.together
@needs_mpi
def test_all_ranks_have_the_same_weights(tmp_path):
    run(3, [HERE / "ddp_models.py", "tensorgrad", tmp_path / "rank"])
    first, *others = (np.load(tmp_path / f"rank{rank}.npz") for rank in range(3))
    for name in first.files:
        if "losses" not in name and "running" not in name:  # each has its own batch, and statistics of it
            for other in others:
                np.testing.assert_array_equal(first[name], other[name], err_msg=name)


@pytest.mark.together
@needs_mpi
def test_a_dead_rank_is_named():
    """The other ranks get one error from the backward pass."""
    results = run(3, ["-c", DYING], check=False)
    assert results[1][0] == 3
    for rank in (0, 2):
        kind, message = json.loads(results[rank][1])
        assert kind == "DistBackendError" and "rank 1 has ended" in message
