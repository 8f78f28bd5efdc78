"""Distributed tensors on meshes of one and two dimensions, beside ordinary ones and beside PyTorch's."""

import importlib.util

import pytest

from tests.distributed.launch import HERE, needs_mpi, run
from tests.support.processes import output_of

pytestmark = pytest.mark.together

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


@needs_mpi
@pytest.mark.parametrize("size", [2, 3, 4])
def test_ops_and_moves(size):
    run(size, [HERE / "dtensor_cases.py"])


@needs_mpi
@needs_torch
def test_like_torch_itself(tmp_path):
    run(2, [HERE / "beside_torch.py", tmp_path / "store"])


@needs_mpi
@needs_torch
def test_samples_of_ops_are_right_or_refused():
    output = run(2, ["-m", "tests.distributed.dtensor_database", 1], EVERY=3)[0][1]  # all: EVERY=1
    assert int(output.splitlines()[-1].split()[0]) >= 150, output


@pytest.mark.parametrize("kind", ["list", "tuple", "dict"])
def test_what_contains_itself_is_refused_as_without_distributed_tensors(kind):
    import tensorgrad
    from tensorgrad.distributed.tensor import DTensor  # from now on, calls are looked through for its tensors

    given = [1]
    given.append({"list": given, "tuple": (given,), "dict": {"a": given}}[kind])
    with pytest.raises(RuntimeError if kind == "dict" else (TypeError, ValueError)):
        tensorgrad.tensor(given)
    assert DTensor


def test_an_import_replaces_no_function():
    program = """
import sys, types
import tensorgrad as torch
import tensorgrad.distributed, tensorgrad.masked
before = {m: dict(vars(m)) for n, m in list(sys.modules.items()) if n.split(".")[0] == "tensorgrad"}
before[torch.Tensor] = dict(vars(torch.Tensor))
import tensorgrad.distributed.tensor
functions = types.FunctionType, type, property, classmethod
print(sorted(f"{m.__name__}.{k}" for m, names in before.items() for k, v in names.items()
             if isinstance(v, functions) and vars(m).get(k) is not v))
"""
    assert output_of(program) == "[]\n"
