"""What small ops cost, counted in calls: a time says little on a busy machine, and one call more is easily missed."""

import sys

import pytest

import tensorgrad as torch
from tensorgrad.nn import functional as F


def calls(function) -> list[str]:
    """The Python functions that a call of `function` runs, itself apart."""
    for _ in range(3):  # the first calls fill caches
        function()
    seen = []

    def note(frame, event, _):
        if event == "call":
            seen.append(frame.f_code.co_qualname if sys.version_info >= (3, 11) else frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(before)
    return seen[1:]


def _programs():
    a, b = (torch.randn(4, 4, requires_grad=True) for _ in range(2))
    plain = torch.randn(4, 4)
    layer = torch.nn.Linear(4, 8)
    relu = torch.nn.ReLU()
    yield "add", lambda: a + b, 1  # what the op's generated function is
    yield "add, no graph", lambda: plain + plain, 1
    yield "add a number", lambda: a + 2.0, 1
    yield "mul", lambda: a * b, 3  # and keeps two factors
    yield "exp", lambda: a.exp(), 4  # and keeps its result, with a storage for it
    yield "matmul", lambda: a @ b, 4
    yield "relu", lambda: F.relu(a), 7
    yield "ReLU", lambda: relu(a), 9
    yield "linear", lambda: F.linear(a, layer.weight, layer.bias), 5
    yield "Linear", lambda: layer(a), 7
    yield "index", lambda: a[1], 3
    yield "transpose", lambda: a.t(), 3
    yield "sum", lambda: a.sum(), 5


@pytest.mark.parametrize("name, program, most", [pytest.param(*row, id=row[0]) for row in _programs()])
def test_a_small_op_runs_few_functions(name, program, most):
    seen = calls(program)
    assert len(seen) <= most, f"{name} ran {len(seen)} functions, expected at most {most}: {', '.join(seen)}"
