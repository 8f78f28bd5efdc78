"""`torch.compile` of a `DistributedDataParallel`: plans of the model in it, and gradients as ever."""

import copy

import pytest

import tensorgrad as torch
import tensorgrad.distributed as dist
from tensorgrad import nn
from tests.distributed.launch import HERE, needs_mpi, run


@needs_mpi
@pytest.mark.together
@pytest.mark.parametrize("size", [2, 3])
def test_a_compiled_wrapper_gives_the_bits_of_the_wrapper(size):
    assert [output for _, output, _ in run(size, [HERE / "compiled_ddp.py"])] == ["done\n"] * size


@pytest.fixture
def alone():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def name(tensor):
    return tensor.grad_fn.name()


@pytest.mark.usefixtures("alone")
def test_only_calls_of_the_compiled_wrapper_run_plans():
    wrapper, x = nn.parallel.DistributedDataParallel(nn.Linear(2, 3)), torch.ones(4, 2)
    compiled = torch.compile(wrapper)
    for _ in range(6):
        compiled(x).sum().backward()
    assert compiled._region.plans == 1 and name(compiled(x)) == "CompiledFunctionBackward"
    assert name(wrapper(x)) == name(wrapper.module(x)) == "AddmmBackward0"
    assert name(copy.deepcopy(wrapper.module)(x)) == "AddmmBackward0"
    other = torch.compile(wrapper)
    assert other._region is not compiled._region and other._region.plans == 0
    assert compiled._region.explain().startswith("Linear")


@pytest.mark.usefixtures("alone")
def test_hooks_of_the_wrapper_run_in_each_call():
    wrapper, x = nn.parallel.DistributedDataParallel(nn.Linear(2, 3)), torch.ones(4, 2)
    compiled, seen = torch.compile(wrapper), []
    wrapper.register_forward_hook(lambda module, args, out: seen.append(module))
    for _ in range(6):
        compiled(x).sum().backward()
    assert seen == [wrapper] * 6 and compiled._region.plans == 1


@pytest.mark.usefixtures("alone")
def test_a_model_that_is_compiled_already_keeps_its_region():
    model, x = nn.Linear(2, 3), torch.ones(4, 2)
    model.compile()
    compiled = torch.compile(nn.parallel.DistributedDataParallel(model))
    for _ in range(6):
        compiled(x).sum().backward()
    assert compiled._region.plans == model.__dict__["_compiled_call_impl"].plans == 1
