"""The rows of benchmarks/transforms.py in JAX, compiled. Imported only if JAX is installed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import transforms


def given(*shape: int, scale: float = 1.0, seed: int = 0):
    """The values that the other libraries get."""
    return jnp.asarray(transforms.array(*shape, scale=scale, seed=seed))


def linear(x, weight, bias=None):
    """x · weightᵀ + bias."""
    return x @ weight.T if bias is None else x @ weight.T + bias


def mlp(*sizes: int) -> Callable:
    """Linear layers with tanh between them."""
    weights = [given(m, n, scale=n**-0.5) for n, m in itertools.pairwise(sizes)]

    def function(x):
        for weight in weights[:-1]:
            x = jnp.tanh(linear(x, weight))
        return linear(x, weights[-1])

    return function


def gpt_block() -> Callable:
    """The transformer block."""
    width, heads = 256, 8
    w_qkv, w_out = given(3 * width, width, scale=width**-0.5), given(width, width, scale=width**-0.5)
    w_up, w_down = given(4 * width, width, scale=width**-0.5), given(width, 4 * width, scale=0.5 * width**-0.5)
    gain, shift = 1 + given(width, scale=0.1), given(width, scale=0.1)

    def norm(x):
        x = x - x.mean(-1, keepdims=True)
        return x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * gain + shift

    def function(x):
        batch, length, _ = x.shape
        parts = linear(norm(x), w_qkv).reshape(batch, length, 3, heads, width // heads).transpose(2, 0, 3, 1, 4)
        query, key, value = parts
        scores = query @ key.swapaxes(-2, -1) * (width // heads) ** -0.5
        weights = jax.nn.softmax(jnp.where(jnp.triu(jnp.ones((length, length), bool), 1), -1e9, scores), axis=-1)
        x = x + linear((weights @ value).swapaxes(1, 2).reshape(batch, length, width), w_out)
        return x + linear(jax.nn.gelu(linear(norm(x), w_up), approximate=False), w_down)

    return function


def mlp_of_parameters(p, x):
    """The logits of the MLP with parameters."""
    return linear(jax.nn.relu(linear(x, p["w"], p["b"])), p["out"])


def convnet_of_parameters(p, x):
    """The logits of the convolutional network."""

    def layer(x, weight):
        x = jax.nn.relu(jax.lax.conv_general_dilated(x, weight, (1, 1), "SAME"))
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")

    x = layer(layer(x, p["one"]), p["two"])
    return linear(x.reshape(len(x), -1), p["out"])


def parameters(shapes: dict[str, tuple[int, ...]], seed: int = 0) -> dict[str, Any]:
    """The values that the other libraries get."""
    scales = {name: 0.5 / max(1, int(np.prod(shape[1:]))) ** 0.5 for name, shape in shapes.items()}
    return {name: given(*shape, scale=scales[name], seed=seed) for name, shape in shapes.items()}


def pushed(function: Callable, *shape: int):
    """A product with a tangent."""
    return lambda x, t: jax.jvp(function, (x,), (t,)), (given(*shape), given(*shape, scale=0.5))


def per_sample(network: Callable, params: dict[str, Any], x):
    """The gradients of each sample's loss."""

    def loss(params, x, y):
        return -jax.nn.log_softmax(network(params, x[None])[0])[y]

    y = jnp.asarray(np.random.default_rng(len(x)).integers(0, 10, len(x)))
    return jax.vmap(jax.grad(loss), in_axes=(None, 0, 0)), (params, x, y)


def _hvp():
    network = mlp(256, 256, 256)
    gradient = jax.grad(lambda x: (network(x) ** 2).sum())
    return pushed(gradient, 64, 256)


def _ensemble():
    members = [parameters(transforms.mlp_shapes(784, 128), seed) for seed in range(10)]
    stacked = {name: jnp.stack([member[name] for member in members]) for name in members[0]}
    return jax.vmap(mlp_of_parameters, in_axes=(0, None)), (stacked, given(64, 784))


# The beginning of a row's name -> a function that returns (the function to compile, its arguments).
ROWS: dict[str, Callable] = {
    "jvp: GPT": lambda: pushed(gpt_block(), 4, 64, 256),
    "jvp: MLP 784": lambda: pushed(mlp(784, 512, 512, 10), 64, 784),
    "jvp: MLP 16": lambda: pushed(mlp(16, 32, 4), 1, 16),
    "hvp": _hvp,
    "jacfwd": lambda: (jax.jacfwd(mlp(256, 256, 256)), (given(256),)),
    "jacrev": lambda: (jax.jacrev(mlp(256, 256, 256)), (given(256),)),
    "hessian": lambda: (jax.hessian(transforms.rosenbrock), (given(32),)),
    "per-sample gradients: MLP": lambda: per_sample(
        mlp_of_parameters, parameters(transforms.mlp_shapes(784, 128)), given(64, 784)
    ),
    "per-sample gradients: ConvNet": lambda: per_sample(
        convnet_of_parameters, parameters(transforms.CONVNET), given(32, 1, 28, 28)
    ),
    "ensemble": _ensemble,
}


def step(name: str) -> Callable:
    """The compiled program of a row; it waits for its results."""
    function, arguments = next(make for start, make in ROWS.items() if name.startswith(start))()
    compiled = jax.jit(function)
    return lambda: jax.block_until_ready(compiled(*arguments))
