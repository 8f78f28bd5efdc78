"""Functional collectives, functions on pieces, `replicate`: results and errors are PyTorch's, in several processes."""

import json

import pytest

from tests.distributed.launch import HERE, needs_mpi, run

pytestmark = pytest.mark.together

pytest.importorskip("torch")


@needs_mpi
@pytest.mark.parametrize("size", [2, 3])
def test_results_are_those_of_pytorch(size):
    mine, theirs = (
        [json.loads(output) for _, output, _ in run(size, [HERE / "functional_cases.py", library])]
        for library in ("tensorgrad", "torch")
    )
    for found, wanted in zip(mine, theirs, strict=True):
        assert list(found) == list(wanted)
        for name in wanted:
            assert found[name] == wanted[name], name
