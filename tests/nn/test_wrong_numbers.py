"""What is no number in the place of one, in right calls of `nn.functional`: PyTorch's type of error, which names it."""

import inspect
import warnings

import pytest

import tensorgrad

torch = pytest.importorskip("torch", reason="the oracle")

CALLS = {
    "alpha_dropout": "x, 0.5", "batch_norm": "x3, ones(3), ones(3)", "celu": "x", "channel_shuffle": "x4, 1",
    "conv1d": "x3, ones(3, 3, 2)", "conv2d": "x4, ones(3, 3, 2, 2)", "conv_transpose2d": "x4, ones(3, 3, 2, 2)",
    "cosine_similarity": "x, x", "cross_entropy": "x, c", "dropout": "x", "elu": "x", "glu": "x4",
    "group_norm": "x3, 3", "hardshrink": "x", "hardtanh": "x", "huber_loss": "x, x", "layer_norm": "x, (3,)",
    "leaky_relu": "x", "log_softmax": "x, 1", "nll_loss": "x, c", "pairwise_distance": "x, x", "pdist": "x",
    "pixel_unshuffle": "x4, 2", "rms_norm": "x, (3,)", "smooth_l1_loss": "x, x", "softmax": "x, 1", "softplus": "x",
    "softshrink": "x", "threshold": "x, 0.1, 2.0", "triplet_margin_loss": "x, x, x", "avg_pool2d": "x4, 2",
    "scaled_dot_product_attention": "x3, x3, x3",
}  # fmt: skip
# Sizes of windows: an integer, or several of them.
WINDOWS = ("stride", "padding", "dilation", "output_padding", "kernel_size")
WRONG = {"str": "a", "object": object(), "list": ["a"], "float": [1.5]}


def arguments(library, text):
    x = library.tensor([[0.1, 0.7, -0.5], [1.5, -2.0, 0.3]])
    x3, x4 = library.ones(2, 3, 4), library.ones(2, 3, 4, 4)
    values = {"ones": library.ones, "x": x, "x3": x3, "x4": x4, "c": library.tensor([0, 1])}
    return list(eval(f"({text},)", values))


def outcome(library, name, parameter, position, wrong):
    given, named = arguments(library, CALLS[name]), {}
    if position < len(given):
        given[position] = wrong
    else:
        named[parameter] = wrong
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            getattr(library.nn.functional, name)(*given, **named)
    except Exception as error:
        return type(error).__name__, str(error)
    return "", ""


@pytest.mark.parametrize("name", CALLS)
def test_the_type_of_error_is_pytorchs(name):
    tried = 0
    for i, p in enumerate(inspect.signature(getattr(tensorgrad.nn.functional, name)).parameters.values()):
        number = str(p.annotation).partition(" | ")[0] in ("int", "float", "number")
        if not number and p.name not in WINDOWS:
            continue
        for kind, wrong in WRONG.items():
            expected, told = outcome(torch, name, p.name, i, wrong)
            found, said = outcome(tensorgrad, name, p.name, i, wrong)
            assert found == expected, (p.name, kind, expected, told, said)
            assert p.name in said or not number or not found, (p.name, kind, said)
            tried += 1
    assert tried
