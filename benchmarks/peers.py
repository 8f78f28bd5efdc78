"""A few rows for other libraries: JAX (fully compiled), tinygrad, autograd and MyGrad.

They include only what all of these libraries can express. Their names are those of rows in the main table, with whose
results they are compared; the weights are tensorgrad's, from the same seed.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from benchmarks.processes import Column

MLP = "training: MLP 784-128-10, batch 32, SGD"
LINEAR = "modules: Linear 64×1024→2048, forward"
POINTWISE = {"pointwise: add 1 M": "add", "pointwise: exp 1 M": "exp", "pointwise: tanh 1 M": "tanh"}
ROWS = (*POINTWISE, LINEAR, MLP)
RATE = 0.1


def columns(threads: int) -> dict[str, Column]:
    """Returns the installed libraries, each with its environment."""
    limit = "" if threads > 1 else "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    known = {
        "jax": Column("JAX", "jax", {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": limit}),
        "tinygrad": Column("tinygrad", "tinygrad", {"DEV": "CPU", "CPU_COUNT": str(threads)}),
        "autograd": Column("autograd", "autograd", {}),
        "mygrad": Column("MyGrad", "mygrad", {}),
    }
    return {name: column for name, column in known.items() if find_spec(column.library) is not None}


def arrays(name: str) -> list[Any]:
    """Returns the NumPy inputs of a row: two vectors; x, weight, bias; or x, y and the network's weights."""
    import tensorgrad as torch
    from benchmarks.rows import drawn, models, whole

    torch.manual_seed(0)
    if name in POINTWISE:
        made = [drawn(torch, 1_000_000), drawn(torch, 1_000_000, seed=1)]
    elif name == LINEAR:
        module = torch.nn.Linear(1024, 2048)
        made = [drawn(torch, 64, 1024), *module.parameters()]
    else:
        made = [drawn(torch, 32, 784), whole(torch, 10, 32), *models.mlp(torch).parameters()]
    return [tensor.detach().numpy().copy() for tensor in made]


def three_steps(step: Callable) -> list[Any]:
    """Runs a step that returns the loss and the gradients. Returns the results that training rows compare."""
    loss, gradients = step()
    return [loss, step()[0], step()[0], *gradients]


def jax(name: str):
    """Builds a row for JAX; steps are compiled, and wait for their results."""
    import jax
    import jax.numpy as np

    given = [np.asarray(array) for array in arrays(name)]
    if name != MLP:
        op = {"add": lambda x, y: x + y, "exp": lambda x, y: np.exp(x), "tanh": lambda x, y: np.tanh(x)}
        function = jax.jit(op[POINTWISE[name]] if name in POINTWISE else lambda x, w, b: x @ w.T + b)
        step = lambda: function(*given).block_until_ready()
        return step, lambda: [step()]

    def loss(weights, x, y):
        w1, b1, w2, b2 = weights
        logits = np.maximum(x @ w1.T + b1, 0) @ w2.T + b2
        return -jax.nn.log_softmax(logits)[np.arange(len(y)), y].mean()

    @jax.jit
    def update(weights, x, y):
        value, gradients = jax.value_and_grad(loss)(weights, x, y)
        return value, gradients, [w - RATE * g for w, g in zip(weights, gradients, strict=True)]

    x, y, *weights = given

    def step():
        nonlocal weights
        value, gradients, weights = jax.block_until_ready(update(weights, x, y))
        return value, gradients

    return step, lambda: three_steps(step)


def tinygrad(name: str):
    """Builds a row for tinygrad; steps are compiled by TinyJit, and wait for their results."""
    from tinygrad import Device, Tensor, TinyJit

    given = [Tensor(array).realize() for array in arrays(name)]
    op = {"add": lambda x, y: x + y, "exp": lambda x, y: x.exp(), "tanh": lambda x, y: x.tanh()}
    x, y, *weights = given

    def update():
        hidden = x.linear(weights[0].T, weights[1]).relu()
        loss = hidden.linear(weights[2].T, weights[3]).sparse_categorical_crossentropy(y)
        gradients = [gradient.contiguous() for gradient in loss.gradient(*weights)]
        changed = [w.assign(w.detach() - RATE * g) for w, g in zip(weights, gradients, strict=True)]
        Tensor.realize(loss, *gradients, *changed)
        return loss, *gradients

    if name == MLP:
        function = update
    elif name == LINEAR:
        function = lambda: (given[0].linear(given[1].T, given[2]).realize(),)
    else:
        function = lambda: (op[POINTWISE[name]](*given).realize(),)
    compiled = TinyJit(function)

    def step():
        results = compiled()
        Device[Device.DEFAULT].synchronize()
        return results

    def copied():  # the compiled function reuses its outputs
        loss, *gradients = (result.numpy().copy() for result in step())
        return loss, gradients

    return step, lambda: three_steps(copied) if name == MLP else [copied()[0]]


def autograd(name: str):
    """Builds a row for autograd."""
    import autograd.numpy as np
    from autograd import grad

    given = arrays(name)
    if name != MLP:
        op = {"add": lambda x, y: x + y, "exp": lambda x, y: np.exp(x), "tanh": lambda x, y: np.tanh(x)}
        function = op[POINTWISE[name]] if name in POINTWISE else lambda x, w, b: x @ w.T + b
        step = lambda: function(*given)
        return step, lambda: [step()]
    x, y, *weights = given
    seen = []

    def loss(weights):
        w1, b1, w2, b2 = weights
        logits = np.maximum(x @ w1.T + b1, 0) @ w2.T + b2
        shifted = logits - np.max(logits, axis=1, keepdims=True)
        value = np.mean(np.log(np.sum(np.exp(shifted), axis=1)) - shifted[np.arange(len(y)), y])
        seen.append(value._value)
        return value

    gradient = grad(loss)

    def step():
        nonlocal weights
        gradients = gradient(weights)
        weights = [w - np.float32(RATE) * g for w, g in zip(weights, gradients, strict=True)]
        return seen.pop(), gradients

    return step, lambda: three_steps(step)


def mygrad(name: str):
    """Builds a row for MyGrad."""
    import mygrad as mg
    from mygrad.nnet.losses import softmax_crossentropy

    given = arrays(name)
    if name != MLP:
        tensors = [mg.tensor(array, constant=True) for array in given]
        op = {"add": lambda x, y: x + y, "exp": lambda x, y: mg.exp(x), "tanh": lambda x, y: mg.tanh(x)}
        function = op[POINTWISE[name]] if name in POINTWISE else lambda x, w, b: x @ w.T + b
        step = lambda: function(*tensors)
        return step, lambda: [step().data]
    x, y = given[:2]
    w1, b1, w2, b2 = weights = [mg.tensor(array) for array in given[2:]]

    def step():
        loss = softmax_crossentropy(mg.nnet.relu(x @ w1.T + b1) @ w2.T + b2, y)
        loss.backward()
        gradients = [weight.grad.copy() for weight in weights]
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.data -= RATE * gradient
        return loss.data, gradients

    return step, lambda: three_steps(step)


BUILDS: dict[str, Callable] = {"jax": jax, "tinygrad": tinygrad, "autograd": autograd, "mygrad": mygrad}


def facts(name: str) -> dict[str, str]:
    """Returns the library's version."""
    return {name: version(name)}
