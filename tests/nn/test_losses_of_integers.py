"""Losses and norms of integers and bools: PyTorch's numbers and dtype, or its type of error."""

import warnings

import pytest

import tensorgrad
from tests.support.compare import array_of, dtype_name

torch = pytest.importorskip("torch", reason="the oracle")

# What follows the input: a target like it, or classes, lists of classes, or two more inputs.
LOSSES = {
    "mse_loss": "", "l1_loss": "", "smooth_l1_loss": "", "huber_loss": "", "binary_cross_entropy": "",
    "binary_cross_entropy_with_logits": "", "kl_div": "", "poisson_nll_loss": "", "soft_margin_loss": "",
    "hinge_embedding_loss": "", "multilabel_soft_margin_loss": "", "nll_loss": "classes", "cross_entropy": "classes",
    "multi_margin_loss": "classes", "multilabel_margin_loss": "lists", "margin_ranking_loss": "three",
    "triplet_margin_loss": "three",
}  # fmt: skip
NORMS = {
    "rms_norm": lambda F, x: F.rms_norm(x, (3,)), "layer_norm": lambda F, x: F.layer_norm(x, (3,)),
    "group_norm": lambda F, x: F.group_norm(x, 1), "normalize": lambda F, x: F.normalize(x),
    "batch_norm": lambda F, x: F.batch_norm(x, None, None, training=True), "softmin": lambda F, x: F.softmin(x, 1),
}  # fmt: skip
DTYPES = ("int64", "uint8", "bool")
# An error of another kind for a reason: PyTorch's NotImplementedError is a RuntimeError.
ALIKE = {"NotImplementedError": "RuntimeError"}


def outcome(call):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = call()
    except Exception as error:
        return ALIKE.get(type(error).__name__, type(error).__name__)
    return dtype_name(made), array_of(made).reshape(-1).tolist()


def assert_same(found, expected, where=""):
    assert found[:1] == expected[:1] if isinstance(found, tuple) else found == expected, (where, found, expected)
    if isinstance(found, tuple):
        assert found[1] == pytest.approx(expected[1], rel=1e-5), where


def loss(library, name, dtype, reduction):
    x = library.tensor([[1, 0, 1], [0, 1, 1]]).to(getattr(library, dtype))
    y = library.tensor([[1, 1, 0], [0, 0, 1]]).to(getattr(library, dtype))
    others = {
        "": (y,), "three": (y, x), "classes": (library.tensor([0, 1]),),
        "lists": (library.tensor([[0, 1, -1], [1, 0, -1]]),),
    }[LOSSES[name]]  # fmt: skip
    return outcome(lambda: getattr(library.nn.functional, name)(x, *others, reduction=reduction))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", LOSSES)
def test_losses(name, dtype):
    for reduction in ("none", "mean", "sum"):
        assert_same(loss(tensorgrad, name, dtype, reduction), loss(torch, name, dtype, reduction), reduction)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NORMS)
def test_norms(name, dtype):
    found, expected = (
        outcome(lambda t=t: NORMS[name](t.nn.functional, t.ones(2, 3).to(getattr(t, dtype))))
        for t in (tensorgrad, torch)
    )
    assert_same(found, expected)
