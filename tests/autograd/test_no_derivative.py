"""Ops whose derivative PyTorch leaves out: their results require grad, and backward says what is not implemented."""

import pytest

from tests.support.alike import alike

CALLS = {
    "unique": lambda t, x: t.unique(x, return_inverse=True, return_counts=True),
    "unique along a dimension": lambda t, x: t.unique(x.reshape(2, 2), dim=0),
    "unique_consecutive": lambda t, x: t.unique_consecutive(x),
    "unique_consecutive along a dimension": lambda t, x: t.unique_consecutive(x.reshape(2, 2), dim=1),
    "histogram": lambda t, x: t.histogram(x, 3)[:1],
    "histogram of weights": lambda t, x: t.histogram(x.detach(), 3, weight=x)[:1],
    "histogramdd": lambda t, x: t.histogramdd(x.reshape(2, 2), [2, 2])[:1],
    "bincount": lambda t, x: t.bincount(t.tensor([0, 1, 1, 2]), x),
    "binomial": lambda t, x: t.binomial(t.ones(4), x),
    "heaviside": lambda t, x: t.heaviside(x, x),
    "floor_divide": lambda t, x: x // 2,
    "geqrf": lambda t, x: t.geqrf(x.reshape(2, 2)),
    "ldl_factor": lambda t, x: t.linalg.ldl_factor(x.reshape(2, 2)),
    "zeta": lambda t, x: t.special.zeta(x + 2, x),
    "histc has none to miss": lambda t, x: t.histc(x, 3),
}


@alike
def test_backward_says_so(torch):
    found = {}
    for name, call in CALLS.items():
        x = torch.tensor([0.5, 0.5, 0.25, 0.75], requires_grad=True)
        results = call(torch, x)
        results = results if isinstance(results, tuple) else (results,)
        found[name] = [r.requires_grad for r in results]
        if results[0].requires_grad:
            with pytest.raises((RuntimeError, NotImplementedError)) as raised:
                results[0].sum().backward()
            found[name] += [raised.type.__name__, str(raised.value)]
        results = call(torch, x.detach())
        assert not any(r.requires_grad for r in (results if isinstance(results, tuple) else (results,)))
    return found


@alike
def test_names_of_the_nodes_of_distinct_elements(torch):
    x = torch.tensor([[1.0, 1.0], [1.0, 1.0]], requires_grad=True)
    results = torch.unique(x), torch.unique(x, dim=0), torch.unique_consecutive(x)
    return [r.grad_fn.name() for r in results], results
