"""Steps of optimizers: ONNX's preview of training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorgrad.onnx.operators.table import TRAINING, operator


def _for_each(step: Callable, values: tuple, kinds: int) -> tuple:
    """Applies a step to each tensor: `values` are first all weights, then all gradients, and so on."""
    if not values or len(values) % kinds:
        raise ValueError(f"onnx: an optimizer's step of {len(values)} tensors, not of a multiple of {kinds}")
    count = len(values) // kinds
    made = [step(*values[i::count]) for i in range(count)]
    return tuple(t for kind in zip(*made, strict=True) for t in kind)


@operator(TRAINING + "Adagrad", several=True)
def adagrad(
    rate: Any, turn: Any, *values: Any, decay_factor: float = 0.0, epsilon: float = 1e-6, norm_coefficient: float = 0.0
) -> Any:
    def step(x: Any, g: Any, squares: Any) -> tuple:
        g = norm_coefficient * x + g
        squares = squares + g * g
        return x - rate / (1 + turn * decay_factor) * g / (squares.sqrt() + epsilon), squares

    return _for_each(step, values, 3)


@operator(TRAINING + "Adam", several=True)
def adam(
    rate: Any, turn: Any, *values: Any, alpha: float = 0.9, beta: float = 0.999, epsilon: float = 1e-6,
    norm_coefficient: float = 0.0, norm_coefficient_post: float = 0.0,
) -> Any:  # fmt: skip
    t = int(turn)
    corrected = rate * (1 - beta**t) ** 0.5 / (1 - alpha**t) if t > 0 else rate

    def step(x: Any, g: Any, mean: Any, squares: Any) -> tuple:
        g = norm_coefficient * x + g
        mean, squares = alpha * mean + (1 - alpha) * g, beta * squares + (1 - beta) * g * g
        return (1 - norm_coefficient_post) * (x - corrected * mean / (squares.sqrt() + epsilon)), mean, squares

    return _for_each(step, values, 4)


@operator(TRAINING + "Momentum", several=True)
def momentum(rate: Any, turn: Any, *values: Any, alpha: float, beta: float, mode: str, norm_coefficient: float) -> Any:
    share = beta if int(turn) > 0 else 1.0

    def step(x: Any, g: Any, velocity: Any) -> tuple:
        g = norm_coefficient * x + g
        velocity = alpha * velocity + share * g
        return x - rate * (g + alpha * velocity if mode == "nesterov" else velocity), velocity

    return _for_each(step, values, 3)
