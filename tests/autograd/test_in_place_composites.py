"""In-place methods of composites: the history is that of PyTorch's op, not that of a copy."""

import re

import pytest

from tests.support.alike import alike, error

CALLS = {
    "scatter_ number": lambda t, y, s: y.scatter_(0, t.tensor([[0, 1, 0]]), 5),
    "scatter_ tensor": lambda t, y, s: y.scatter_(0, t.tensor([[0, 1, 0]]), s[:1]),
    "scatter_add_": lambda t, y, s: y.scatter_add_(0, t.tensor([[0, 1, 0]]), s[:1]),
    "scatter_reduce_": lambda t, y, s: y.scatter_reduce_(0, t.tensor([[0, 1, 0]]), s[:1], "amax"),
    "index_add_": lambda t, y, s: y.index_add_(0, t.tensor([1]), s[:1], alpha=2),
    "index_copy_": lambda t, y, s: y.index_copy_(0, t.tensor([1]), s[:1]),
    "index_reduce_": lambda t, y, s: y.index_reduce_(0, t.tensor([1]), s[:1], "prod"),
    "index_fill_": lambda t, y, s: y.index_fill_(0, t.tensor([1]), 3.0),
    "masked_scatter_": lambda t, y, s: y.masked_scatter_(y > 3, s),
    "nan_to_num_": lambda t, y, s: y.nan_to_num_(0.0),
    "logit_": lambda t, y, s: y.logit_(0.1),
    "ldexp_": lambda t, y, s: y.ldexp_(t.tensor(2)),
    "xlogy_": lambda t, y, s: y.xlogy_(s),
}


COMES_DOWN_TO = {"IndexReduce": "ScatterReduce", "Ldexp": "Mul"}  # what has no row of its own


def made(torch, kind):
    x = torch.arange(1.0, 7.0).reshape(2, 3).requires_grad_(kind != "a constant")
    s = torch.full((2, 3), 0.5, requires_grad=True)
    y = x * 2
    return x, s, y, y.view(2, 3) if kind == "a view" else y


@pytest.mark.parametrize("kind", ["a result", "a view", "a constant"])
@pytest.mark.parametrize("name", CALLS)
def test_the_history_is_that_of_the_op(name, kind):
    def scenario(torch):
        x, s, y, written = made(torch, kind)
        CALLS[name](torch, written, s)
        if not y.requires_grad:
            return "no history"
        told = re.sub(r"Backward\d*$", "", y.grad_fn.name())
        told = COMES_DOWN_TO.get(told, told), y._version
        y.square().sum().backward()
        again = error(lambda: y.sum().backward(inputs=[y])).partition(":")[0]
        return told, x.grad, s.grad, again

    scenario.__name__ = scenario.__qualname__ = "test_scenario"
    alike(scenario)()


@alike
def test_an_input_that_is_also_an_argument(torch):
    x = torch.arange(1.0, 4.0).requires_grad_()
    y = x * 2
    y.index_add_(0, torch.tensor([0]), y[1:2] + y[:1])
    y.scatter_add_(0, torch.tensor([0, 0]), y[1:] * 1)
    y.sum().backward()
    return y, x.grad, y._version
