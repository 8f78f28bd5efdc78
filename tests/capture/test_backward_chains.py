"""Chains in plans of backward passes outside of a region: machine code runs their kernels as one list, bit for bit."""

import copy
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorgrad as torch
from tensorgrad import nn
from tensorgrad.capture import backward
from tensorgrad.capture.region import Region
from tests.capture.compare import bits
from tests.capture.test_chains import usable

F = nn.functional

pytestmark = pytest.mark.skipif(not usable(), reason="needs the compiled kernels")


def network(sizes, act=nn.ReLU, seed=0):
    torch.manual_seed(seed)
    layers = [m for a, b in itertools.pairwise(sizes) for m in (nn.Linear(a, b), act())][:-1]
    return nn.Sequential(*layers)


def backward_plans(region):
    histories = [plan.history for kind in region.kinds.values() for _, plan in kind.plans]
    return [plan for history in histories for plan in history.backward_plans.values()]


def both(sizes, batch=4, act=nn.ReLU, seed=0):
    """A model, its region, a copy of the model that stays eager, and inputs."""
    model = network(sizes, act, seed)
    return model, Region(model), copy.deepcopy(model), torch.randn(batch, sizes[0])


def test_the_backward_pass_of_a_small_network_is_one_chain():
    _, region, _, x = both((2, 8, 8, 2))
    for _ in range(6):
        region(x).sum().backward()
    (plan,) = backward_plans(region)
    assert plan.source.count("replay(") == 1 and "arena" in plan.source, plan.source
    assert "backward pass" in region.explain() and region.explain().count("(chain 1)") == 10


@settings(max_examples=20, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([1, 2, 3, 8, 17, 64, 130, 300]), min_size=2, max_size=4),
    batch=st.sampled_from([1, 2, 5, 32, 70]),
    act=st.sampled_from([nn.ReLU, nn.Tanh, nn.GELU, nn.Sigmoid]),
    seed=st.integers(0, 99),
)
def test_gradients_have_the_bits_of_the_program(sizes, batch, act, seed):
    model, region, same, x = both(sizes, batch, act, seed)
    for turn in range(9):
        gradient = torch.randn(batch, sizes[-1]) if turn % 2 else torch.randn(sizes[-1], batch).t()
        for m, call in ((model, region), (same, same)):
            if turn % 3 == 0:
                m.zero_grad()
            out = call(x)
            if turn == 4:
                out.backward(gradient, retain_graph=True)
            if turn == 5:
                torch.autograd.grad(out, list(m.parameters())[:1], gradient, retain_graph=True)
            out.backward(gradient)
        assert [bits(p.grad) for p in model.parameters()] == [bits(p.grad) for p in same.parameters()]


def test_gradients_of_inputs_and_results_that_stay_as_they_were():
    model, region, same, x = both((3, 8, 4))
    held = []
    for _ in range(8):
        ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        found = torch.autograd.grad(region(ours).tanh().sum(), [ours, *model.parameters()])
        expected = torch.autograd.grad(same(theirs).tanh().sum(), [theirs, *same.parameters()])
        assert bits(list(found)) == bits(list(expected))
        held.append((found, bits(list(found))))
    assert all(bits(list(found)) == first for found, first in held)


def test_a_chain_that_gives_something_else_is_not_used(monkeypatch):
    monkeypatch.setattr(backward, "FULL", backward.FULL | {"replay": lambda *given: True})  # and computes nothing
    model, region, same, x = both((3, 8, 8, 4))
    for _ in range(7):
        for m, call in ((model, region), (same, same)):
            m.zero_grad()
            call(x).sum().backward()
        assert [bits(p.grad) for p in model.parameters()] == [bits(p.grad) for p in same.parameters()]
    (plan,) = backward_plans(region)
    assert plan is not None and plan.chains is None and "replay(" not in plan.source
