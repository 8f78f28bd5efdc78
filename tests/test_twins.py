"""Kernels and their twins agree: the same records of PyTorch's database with every fused kernel replaced by its twin,
and with every backward on arrays replaced by the formulas."""

from contextlib import contextmanager

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is the oracle of these tests")
pytest.importorskip("expecttest", reason="PyTorch's test database imports expecttest")

import torch

from tensorgrad.dispatch import generate, kernel_tables
from tensorgrad.dispatch.kernel_tables import OPS
from tensorgrad.dispatch.twins import twin_kernel
from tests import opdb

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
    changed = [op for op in OPS.values() if op.twin is not None]
    for op in changed:
        op.kernels[np.ndarray] = kernel_tables.without_cache(op, twin_kernel(op))
        if op.wrt:
            op.array_backwards[np.ndarray] = None
    try:
        yield
    finally:
        for op in changed:
            op.kernels.clear()
            generate.forget_backward(op)


@contextmanager
def formulas():
    """Every backward runs its formulas on tensors."""
    changed = [op for op in OPS.values() if op.on_arrays or op.backward_kernel]
    assert changed
    for op in changed:
        op.array_backwards[np.ndarray] = None
    try:
        yield
    finally:
        for op in changed:
            generate.forget_backward(op)


def test_there_are_twins():
    assert sum(op.twin is not None and op.kernel is not None for op in OPS.values()) >= 30


@pytest.mark.parametrize("way", [in_simple_ops, formulas])
@pytest.mark.parametrize("record", RECORDS, ids=opdb.record_name)
def test_agrees(record, way):
    with way():
        problems = opdb.check_forward(record, torch.float64) + opdb.check_gradient(record, torch.float64, limit=6)
    assert not problems, "\n".join(problems[:6])
