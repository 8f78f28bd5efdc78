"""`torch._dynamo.explain` has PyTorch's fields, and counts graphs, breaks and ops as PyTorch does."""

import dataclasses

import pytest

import tensorgrad
from tensorgrad.compat.absent_values import explain

theirs = pytest.importorskip("torch", reason="its counts are what is compared")
EXPLAIN = {tensorgrad: explain, theirs: theirs._dynamo.explain}


def _chain(lib):
    return lambda x: lib.relu(x * 2) + 1


def _layers(lib):
    w = lib.ones(3, 2)
    return lambda x: lib.sum(lib.nn.functional.linear(x, w))


def _nothing(lib):
    return lambda x: lib.add(x, x)


def _training(lib):
    w = lib.ones(3, 2, requires_grad=True)
    return lambda x: lib.sum(lib.nn.functional.linear(x, w))


@pytest.mark.parametrize("make", [_chain, _layers, _nothing, _training])
def test_what_is_one_graph_has_the_same_counts(make):
    found = []
    for lib in (tensorgrad, theirs):
        said = EXPLAIN[lib](make(lib))(lib.ones(2, 2))
        found.append((said.graph_count, said.graph_break_count, said.op_count, [len(ops) for ops in said.ops_per_graph],
                      len(said.graphs), said.break_reasons))  # fmt: skip
        assert str(said).startswith(f"Graph Count: {said.graph_count}\nGraph Break Count: 0\nOp Count:")
        if lib is tensorgrad:
            fields = {field.name for field in dataclasses.fields(said)}
            given = lib.ones(2, 2)
            assert said.graphs[0](given)[0].tolist() == make(lib)(given).tolist()
        else:
            assert {field.name for field in dataclasses.fields(said)} <= fields
    assert found[0] == found[1]
    theirs._dynamo.reset()


def _prints(x):
    y = x * 2
    print("between")
    return y + 1


def test_a_break_has_a_reason_and_a_place(capsys):
    found = []
    for lib in (tensorgrad, theirs):
        said = EXPLAIN[lib](_prints)(lib.ones(2))
        (reason,) = said.break_reasons
        found.append((said.graph_break_count, reason.user_stack[-1].filename, reason.user_stack[-1].lineno))
        assert "print" in reason.reason and reason.graph_break
    assert found[0] == found[1]
    theirs._dynamo.reset()


def test_a_compiled_function_is_asked_itself():
    double = tensorgrad.compile(lambda x: x * 2)
    assert explain(double, tensorgrad.ones(2)).graph_count == 1
    assert double._region.plans == 1
