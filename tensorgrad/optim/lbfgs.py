"""L-BFGS, the limited-memory method of Broyden, Fletcher, Goldfarb and Shanno."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorgrad as torch
from tensorgrad.optim import wolfe
from tensorgrad.optim.checks import check_lr
from tensorgrad.optim.optimizer import Optimizer
from tensorgrad.tensor import Tensor, wrap

__all__ = ["LBFGS"]

LEAST_CURVATURE = 1e-10  # changes of the gradient with less curvature are ignored


class LBFGS(Optimizer):
    """A quasi-Newton method that estimates the inverse Hessian from the last steps and changes of the gradient.

    The direction is -H g, where H is computed from the last `history_size` steps s and gradient changes y by the
    two-loop recursion, starting from yᵀs / yᵀy times the identity (Nocedal, 1980, *Updating Quasi-Newton Matrices with
    Limited Storage*). It requires a deterministic loss: full batches, no dropout.

    One `step` makes up to `max_iter` iterations, each of which calls the closure.

    Args:
        params: the parameters to optimize, in one group.
        lr: the length of a step, in units of the direction; with a line search, the first length to try.
        max_iter: the maximum number of iterations per `step`.
        max_eval: the maximum number of calls of the closure per `step`; by default 1.25 · `max_iter`.
        tolerance_grad: stop if no element of the gradient is larger than this.
        tolerance_change: stop if the parameters, or the loss, change by less than this.
        history_size: the number of steps to remember.
        line_search_fn: `"strong_wolfe"`, or `None` for steps of the length `lr`.

    Raises:
        ValueError: the learning rate is negative, or there is more than one group.

    >>> w = torch.tensor([3.0, -1.0], requires_grad=True)
    >>> optimizer = torch.optim.LBFGS([w], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = ((w - torch.tensor([1.0, 2.0])) ** 2).sum()
    ...     loss.backward()
    ...     return loss
    >>> optimizer.step(closure).item()
    13.0
    >>> w
    tensor([1.0000, 2.0000], requires_grad=True)
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        check_lr(lr)
        defaults = {
            "lr": lr, "max_iter": max_iter, "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change, "history_size": history_size,
            "line_search_fn": line_search_fn,
        }  # fmt: skip
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    @property
    def _params(self) -> list[Tensor]:
        return self.param_groups[0]["params"]

    @torch.no_grad()
    def step(self, closure: Callable[[], Any]) -> Any:  # type: ignore[override]  # needs one, as PyTorch's
        """Makes up to `max_iter` iterations.

        Args:
            closure: computes the loss and its gradients, and returns the loss.

        Returns:
            The first result of `closure`.

        Raises:
            RuntimeError: `line_search_fn` is unknown.
        """
        if len(self.param_groups) != 1:
            raise AssertionError(f"Expected exactly one param_group, but got {len(self.param_groups)}")
        closure = torch.enable_grad()(closure)
        group, state = self.param_groups[0], self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first = closure()
        state["func_evals"] += 1
        gradient = self._gradient()
        if not gradient.abs().max() <= group["tolerance_grad"]:
            self._iterate(closure, group, state, float(first), gradient)
        return first

    def _iterate(
        self, closure: Callable[[], Any], group: dict[str, Any], state: dict[str, Any], loss: float, gradient: Tensor
    ) -> None:
        lr, least_change = group["lr"], group["tolerance_change"]
        lr = lr.squeeze() if isinstance(lr, Tensor) else lr
        max_eval, evaluations = group["max_eval"], 1
        for i in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            d = _direction(state, gradient, group["history_size"])
            t: Any = lr
            if state["n_iter"] == 1:
                shortest: Any = 1.0 / gradient.abs().sum()
                t = min(1.0, shortest) * lr
            state.update(d=d, t=t, prev_flat_grad=gradient, prev_loss=loss)
            slope = gradient.dot(d)
            if slope > -least_change:
                break
            last_loss, last = loss, i == group["max_iter"]
            if group["line_search_fn"] is not None:
                start = wolfe.Point(0, loss, gradient, slope)
                point, calls = self._search(closure, group, start, t, d, max_eval - evaluations)
                t, loss, gradient, _ = point
                state["t"] = t
                self._move(t, d)
            else:
                self._move(t, d)
                calls = 0
                if not last:  # not needed after the last iteration
                    loss, gradient, calls = float(closure()), self._gradient(), 1
            evaluations += calls
            state["func_evals"] += calls
            if (
                last
                or evaluations >= max_eval
                or gradient.abs().max() <= group["tolerance_grad"]
                or d.mul(t).abs().max() <= least_change
                or abs(loss - last_loss) < least_change
            ):
                break

    def _search(
        self, closure: Callable[[], Any], group: dict[str, Any], start: wolfe.Point, t: Any, d: Tensor, trials: int
    ) -> tuple[wolfe.Point, int]:
        if group["line_search_fn"] != "strong_wolfe":
            raise RuntimeError("only 'strong_wolfe' is supported")
        before = [p.clone() for p in self._params]
        size, least_change = d.abs().max(), group["tolerance_change"]

        def evaluate(t: Any) -> wolfe.Point:
            self._move(t, d)
            loss, gradient = float(closure()), self._gradient()
            for p, old in zip(self._params, before, strict=True):
                p.copy_(old)
            return wolfe.Point(t, loss, gradient, gradient.dot(d))

        return wolfe.search(evaluate, start, t, lambda length: length * size < least_change, trials)

    def _gradient(self) -> Tensor:
        """Returns the gradients of all parameters as one new vector, with complex elements as pairs of real ones."""
        return torch.cat([_flat(torch.zeros_like(p) if p.grad is None else p.grad) for p in self._params])

    def _move(self, t: Any, d: Tensor) -> None:
        """Moves all parameters by `t` times their parts of the vector `d`."""
        start = 0
        for p in self._params:
            p = torch.view_as_real(p) if p.is_complex() else p
            p.add_(d[start : start + p.numel()].view_as(p), alpha=t)
            start += p.numel()


def _flat(tensor: Tensor) -> Tensor:
    return (torch.view_as_real(tensor) if tensor.is_complex() else tensor).reshape(-1)


def _direction(state: dict[str, Any], gradient: Tensor, history: int) -> Tensor:
    """Returns -H g, after adding the last step and its change of the gradient to the history that determines H."""
    if state["n_iter"] == 1:
        state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1)
        return gradient.neg()
    changes, steps, inverses = state["old_dirs"], state["old_stps"], state["ro"]
    y, s = gradient.sub(state["prev_flat_grad"]), state["d"].mul(state["t"])
    ys = y.dot(s)
    if ys > LEAST_CURVATURE:
        if len(changes) == history:
            for remembered in (changes, steps, inverses):
                remembered.pop(0)
        changes.append(y)
        steps.append(s)
        inverses.append(1.0 / ys)
        state["H_diag"] = ys / y.dot(y)
    state.setdefault("al", [None] * history)  # PyTorch's scratch memory, which is part of its checkpoints
    recursion = gradient._storage.guard(_recursion)
    return wrap(recursion(gradient._array, changes, steps, inverses, state["H_diag"]))


def _recursion(gradient: Any, changes: list[Tensor], steps: list[Tensor], inverses: list[Tensor], scale: Any) -> Any:
    """Returns -H g by the two-loop recursion, on arrays, as an iteration makes hundreds of small operations."""
    pairs = [(y._array, s._array, inverse._array[()]) for y, s, inverse in zip(changes, steps, inverses, strict=True)]
    q, alphas = -gradient, []
    for y, s, inverse in reversed(pairs):
        alpha = s.dot(q) * inverse
        q -= y * alpha
        alphas.append(alpha)
    q *= scale._array if isinstance(scale, Tensor) else scale
    for (y, s, inverse), alpha in zip(pairs, reversed(alphas), strict=True):
        q += s * (alpha - y.dot(q) * inverse)
    return q
