"""State dicts of distributed models: the same as PyTorch's, and they resume training with any way of dividing."""

import json

import pytest

import tensorgrad as torch
import tensorgrad.distributed.checkpoint as dcp
from tests.distributed.launch import HERE, needs_mpi, run

pytestmark = pytest.mark.together


def results(library, folder):
    return [json.loads(output) for _, output, _ in run(2, [HERE / "state_dict_cases.py", library, folder])]


@needs_mpi
def test_everything_is_as_in_pytorch(tmp_path):
    theirs = pytest.importorskip("torch")
    their_dcp = pytest.importorskip("torch.distributed.checkpoint")
    wanted = results("torch", tmp_path)
    assert results("tensorgrad", tmp_path) == wanted
    found = []
    for library, checkpoints in ((torch, dcp), (theirs, their_dcp)):
        state = {"model": {"0.weight": library.zeros(5, 3, dtype=library.float64)}}
        checkpoints.load(state, checkpoint_id=tmp_path / "tensorgrad", no_dist=True)
        found.append(state["model"]["0.weight"].tolist())
    assert found[0] == found[1] and found[0] != [[0.0] * 3] * 5
