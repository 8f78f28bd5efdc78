"""`ZeroRedundancyOptimizer`: the numbers of one process, with a part of the state on each."""

import json

import pytest

import tensorgrad as torch
import tensorgrad.distributed as dist
from tensorgrad.distributed.optim import ZeroRedundancyOptimizer
from tests.distributed.launch import HERE, needs_mpi, run


def results(size, library):
    return [json.loads(output) for _, output, _ in run(size, [HERE / "zero.py", library])]


@pytest.mark.together
@needs_mpi
@pytest.mark.parametrize("size", [2, 3, 4])
def test_numbers_are_those_of_one_process(size):
    for found in results(size, "tensorgrad"):
        own, whole = found["memory"]
        assert own < 1.1 * whole / size


@pytest.mark.together
@needs_mpi
def test_everything_is_as_in_pytorch():
    pytest.importorskip("torch")
    mine = results(2, "tensorgrad")
    for found in mine:
        assert found.pop("same_numbers_as_one_process") is None
    assert mine == results(2, "torch")


@pytest.fixture
def alone():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_what_fails_changes_nothing(alone):
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = ZeroRedundancyOptimizer([weight], torch.optim.SGD, lr=0.1)
    for params, message in [
        ([torch.nn.Parameter(torch.ones(2, dtype=torch.float64))], "same dense type"),
        ([weight], "some parameters appear in more than one parameter group"),
    ]:
        with pytest.raises(ValueError, match=message):
            optimizer.add_param_group({"params": params})
        assert len(optimizer.param_groups) == len(optimizer.optim.param_groups) == 1
    with pytest.raises(ValueError, match="doesn't match the size"):
        optimizer.load_state_dict(torch.optim.SGD([torch.ones(1), torch.ones(1)], lr=0.5).state_dict())
    with pytest.raises(ValueError, match="Group rank 3"):
        optimizer.consolidate_state_dict(to=3)
    with pytest.raises(NotImplementedError, match="overlap_with_ddp=True is not included"):
        ZeroRedundancyOptimizer([weight], torch.optim.SGD, overlap_with_ddp=True, lr=0.1)
    assert optimizer.param_groups[0]["lr"] == 0.1


def test_a_saved_state_is_not_changed_by_loading_or_by_later_steps(alone):
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = ZeroRedundancyOptimizer([weight], torch.optim.SGD, lr=0.1, momentum=0.9)
    weight.grad = torch.ones(2)
    optimizer.step()
    optimizer.consolidate_state_dict()
    saved = optimizer.state_dict()
    optimizer.step()
    assert saved["state"][0]["momentum_buffer"].tolist() == [1.0, 1.0]
    optimizer.load_state_dict(saved)
    optimizer.step()
    assert saved["state"][0]["momentum_buffer"].tolist() == [1.0, 1.0]
