"""Kernels and their twins agree: the same records of PyTorch's database with every fused kernel replaced by its twin,
and with every backward on arrays replaced by the formulas. And derivatives through twins, of both orders."""

import itertools
from contextlib import contextmanager

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is the oracle of these tests")
pytest.importorskip("expecttest", reason="PyTorch's test database imports expecttest")

import torch

import tensorgrad as tg
from tensorgrad.dispatch import generate
from tensorgrad.dispatch.kinds import op
from tensorgrad.dispatch.twins import twin_kernel
from tensorgrad.nn import functional as F
from tensorgrad.ops.nn.rnn import _gru, _lstm, _rnn
from tensorgrad.rows import kernel_tables
from tensorgrad.rows.kernel_tables import OPS
from tests.conformance import opdb

NAMES = {
    "tanh", "sigmoid", "softmax", "log_softmax", "logsumexp", "sum", "mean", "mul", "div", "exp", "log", "sqrt", "prod",
    "nn.functional.linear", "nn.functional.relu", "nn.functional.gelu", "nn.functional.silu", "nn.functional.mish",
    "nn.functional.softplus", "nn.functional.logsigmoid", "nn.functional.elu", "nn.functional.hardswish",
    "nn.functional.hardsigmoid", "nn.functional.leaky_relu", "nn.functional.layer_norm", "nn.functional.group_norm",
    "nn.functional.rms_norm", "nn.functional.batch_norm", "nn.functional.mse_loss", "nn.functional.l1_loss",
    "nn.functional.smooth_l1_loss", "nn.functional.huber_loss", "nn.functional.binary_cross_entropy",
    "nn.functional.binary_cross_entropy_with_logits", "nn.functional.cross_entropy", "nn.functional.nll_loss",
    "nn.functional.kl_div", "nn.functional.scaled_dot_product_attention",
}  # fmt: skip
RECORDS = [r for r in opdb.records() if r.name in NAMES]


@contextmanager
def in_simple_ops():
    """Every op that has a twin runs it, forward and backward."""
    changed = [row for row in OPS.values() if row.twin is not None]
    for row in changed:
        row.compiled.kernels[np.ndarray] = kernel_tables.without_cache(row, twin_kernel(row))
        if row.wrt:
            row.compiled.array_backwards[np.ndarray] = None
    try:
        yield
    finally:
        for row in changed:
            row.compiled.kernels.clear()
            generate.forget_backward(row)


@contextmanager
def formulas():
    """Every backward runs its formulas, or the twin, on tensors."""
    changed = [row for row in OPS.values() if row.on_arrays or row.backward_kernel]
    assert changed
    for row in changed:
        row.compiled.array_backwards[np.ndarray] = None
    try:
        yield
    finally:
        for row in changed:
            generate.forget_backward(row)


def test_there_are_twins():
    assert sum(row.twin is not None and row.kernel is not None for row in OPS.values()) >= 23


@pytest.mark.parametrize("way", [in_simple_ops, formulas])
@pytest.mark.parametrize("record", RECORDS, ids=opdb.record_name)
def test_agrees(record, way):
    with way():
        problems = opdb.check_forward(record, torch.float64) + opdb.check_gradient(record, torch.float64, limit=6)
    assert not problems, "\n".join(problems[:6])


# --- derivatives through twins ---------------------------------------------------------------------------------------


def normal(*shape):
    return tg.randn(*shape, dtype=tg.float64)


TARGETS = tg.tensor([1, 0, 3, -100])
FUSED = {
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (4,), w, b), (3, 4), (4,), (4,)),
    "rms_norm": (lambda x, w: F.rms_norm(x, (4,), w), (3, 4), (4,)),
    "batch_norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), (4, 3, 2), (3,), (3,)),
    "batch_norm by running statistics": (
        lambda x, w, b: F.batch_norm(x, tg.zeros(3, dtype=x.dtype), tg.ones(3, dtype=x.dtype), w, b),
        (4, 3, 2), (3,), (3,),
    ),
    "group_norm": (lambda x, w, b: F.group_norm(x, 2, w, b), (2, 4, 3), (4,), (4,)),
    "native_group_norm": (lambda x, w, b: tg.native_group_norm(x, w, b, 2, 4, 3, 2, 1e-5), (2, 4, 3), (4,), (4,)),
    "attention": (F.scaled_dot_product_attention, (1, 3, 4), (2, 5, 4), (2, 5, 2), (3, 5)),
    "causal attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), (3, 4), (3, 4), (3, 2),
    ),
    "cross_entropy": (lambda x: F.cross_entropy(x, TARGETS, label_smoothing=0.1), (4, 5)),
    "mse": (F.mse_loss, (3, 2), (3, 2)),
    "huber": (F.huber_loss, (3, 2), (3, 2)),
    "rnn": (lambda x, h, w, u: _rnn(x, h, w, u, None, None, (2, 1), True, False), (3, 2), (2, 2), (2, 2), (2, 2)),
    "gru": (lambda x, h, w, u: _gru(x, h, w, u, None, None, (2, 1), False)[0], (3, 2), (2, 1), (3, 2), (3, 1)),
    "lstm": (lambda x, h, c, w, u, p: _lstm(x, h, c, w, u, None, None, p, (2, 1), False)[:2],
             (3, 2), (2, 1), (2, 2), (8, 2), (8, 1), (1, 2)),
    "grid_sample": (lambda x, g: F.grid_sample(x, g / 4, align_corners=False), (1, 1, 3, 3), (1, 2, 2, 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", FUSED)
def test_both_derivatives_for_all_subsets_of_inputs(name):
    call, *shapes = FUSED[name]
    for wanted in itertools.product((False, True), repeat=len(shapes)):
        inputs = [normal(*shape).requires_grad_(want) for shape, want in zip(shapes, wanted, strict=True)]
        if any(wanted):
            assert tg.autograd.gradcheck(call, inputs) and tg.autograd.gradgradcheck(call, inputs)


def test_inputs_that_are_one_or_depend_on_each_other():
    x = normal(4, 4).requires_grad_()
    for call in (
        lambda x: F.scaled_dot_product_attention(x, x, x),
        lambda x: F.layer_norm(x, (4,), x.sum(0), x.mean(1)),
        lambda x: F.layer_norm(F.layer_norm(x * x, (4,)), (4,), x[0], x[0]),
    ):
        assert tg.autograd.gradcheck(call, x) and tg.autograd.gradgradcheck(call, x)


def test_the_pass_through_a_twin_ends_at_the_nodes_inputs():
    """What lies behind them is neither walked through nor freed, and hooks on it run once."""
    x, seen = normal(3, 4).requires_grad_(), []
    before = x.exp()
    before.register_hook(lambda g: seen.append(g.shape))
    y = F.layer_norm(before, (4,))
    (first,) = tg.autograd.grad(y.sin().sum(), x, create_graph=True)
    assert seen == [(3, 4)]
    first.square().sum().backward()
    assert x.grad.shape == (3, 4)


def test_a_second_derivative_at_the_bottom_of_a_loss():
    """Where the difference is 0 its absolute value has no slope; the loss has."""
    for loss, expected in ((F.mse_loss, 2.0), (F.smooth_l1_loss, 1.0), (F.huber_loss, 1.0)):
        x = tg.zeros(3, requires_grad=True)
        (first,) = tg.autograd.grad(loss(x, tg.zeros(3), reduction="sum"), x, create_graph=True)
        (second,) = tg.autograd.grad(first.sum(), x)
        assert second.tolist() == [expected] * 3


@pytest.mark.parametrize("create_graph", [False, True])
def test_what_is_needed_may_not_be_written_to(create_graph):
    x, w = normal(3, 4).requires_grad_(), normal(4)
    y = F.layer_norm(x, (4,), w)
    w.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        tg.autograd.grad(y.sum(), x, create_graph=create_graph)


def test_what_the_backward_kernel_does_not_read_may_be_written_to():
    mean, var = tg.zeros(4), tg.ones(4)
    x = tg.randn(3, 4, requires_grad=True)
    y = F.batch_norm(x, mean, var)
    expected = tg.autograd.grad(y.sum(), x, retain_graph=True)[0]
    mean.add_(1), var.mul_(4)
    assert tg.autograd.grad(y.sum(), x)[0].tolist() == expected.tolist()


def test_hooks_on_saved_tensors_see_the_cache():
    x, packed = normal(3, 4).requires_grad_(), []

    def pack(t):
        packed.append(tuple(t.shape))
        return t.numpy().copy()

    with tg.autograd.graph.saved_tensors_hooks(pack, tg.from_numpy):
        y = F.layer_norm(x, (4,))
    assert sorted(packed) == [(3, 1), (3, 1), (3, 4)]
    plain = tg.autograd.grad(F.layer_norm(x, (4,)).sin().sum(), x)[0]
    for create_graph in (False, True):
        (found,) = tg.autograd.grad(y.sin().sum(), x, create_graph=create_graph, retain_graph=True)
        assert tg.allclose(found, plain)


def test_a_twin_is_not_cast_again():
    """Autocast has cast the op's inputs: within the twin it is off, forward (as on meta) and backward."""
    x, w = tg.randn(3, 4, requires_grad=True), tg.randn(8, 4, requires_grad=True)
    h, u = tg.randn(3, 2), tg.randn(8, 2)
    with tg.autocast("cpu", dtype=tg.bfloat16):
        out, _, _ = _lstm(x, h, h, w, u, None, None, None, (3,), False)
        assert out.dtype is tg.bfloat16
        (first,) = tg.autograd.grad(out.float().sum(), x, create_graph=True)
        loss = F.mse_loss(x, tg.zeros(3, 4))
        (slope,) = tg.autograd.grad(loss, x, create_graph=True)
    assert first.dtype is slope.dtype is tg.float32
    assert tg.allclose(slope, x / 6)


def test_shapes_alone_have_derivatives():
    for name, (call, *shapes) in FUSED.items():
        if name not in ("cross_entropy", "batch_norm by running statistics", "grid_sample"):
            inputs = [tg.empty(shape, device="meta", requires_grad=True) for shape in shapes]
            result = call(*inputs)
            result = result[0] if isinstance(result, tuple) else result
            result.sum().backward()
            assert all(t.grad is not None and t.grad.shape == t.shape for t in inputs)


def test_one_node_by_the_backward_kernel_with_what_it_needs():
    """Nothing but what the kernel and the twin take is kept, and the cache is not an output."""
    y = F.layer_norm(tg.randn(3, 4, requires_grad=True), (4,), tg.ones(4))
    node = y.grad_fn
    assert list(node.op.saved) == ["input", "weight", "bias", "mean", "rstd"] and node.op.outputs == ("out",)
    assert node._saved_result1.shape == (3, 1) and node._saved_input.shape == (3, 4)


def test_a_row_of_a_kernel_and_a_twin_has_derivatives():
    double = op("double_in_test(input)", lambda xp, x: x + x, twin=lambda input: input * 2, where=())
    try:
        x = normal(3).requires_grad_()
        assert double(x).grad_fn.name() == "DoubleInTestBackward0"
        assert tg.autograd.gradcheck(double, x) and tg.autograd.gradgradcheck(double, x)
    finally:
        del OPS["double_in_test"]


def test_a_backward_kernel_that_asks_for_what_is_not_there():
    with pytest.raises(
        NameError, match="wrong_in_test: the backward kernel needs 'output', which the op does not have"
    ):
        op("wrong_in_test(input)", lambda xp, x: x, twin=lambda input: input, backward_kernel=lambda xp, g, output: g)
