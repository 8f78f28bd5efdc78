"""`torch.autograd.forward_ad`: derivatives along a direction, carried by "dual" tensors.

    with dual_level():
        x = make_dual(primal, tangent)
        derivative = unpack_dual(f(x)).tangent

Here a dual tensor is one that requires grad. Its results are differentiated when they are unpacked, by two backward
passes: the gradient Jᵀv is linear in v, so its own gradient along the tangent t is J t. Consequently results computed
under `no_grad` have no tangent, and the `jvp` of custom functions is not used.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tensorgrad.autograd.engine import reachable
from tensorgrad.autograd.gradients import grad
from tensorgrad.autograd.modes import GRAD, enable_grad
from tensorgrad.autograd.views import edge_of
from tensorgrad.tensor import Tensor

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]

_levels: list[list[tuple[Tensor, Tensor]]] = []  # at most one level: its dual tensors with their tangents


class UnpackedDualTensor(NamedTuple):
    """The two parts of a dual tensor; `tangent` is None for tensors that do not depend on a dual tensor.

    >>> import tensorgrad as torch
    >>> from tensorgrad.autograd import forward_ad
    >>> with forward_ad.dual_level():
    ...     primal, tangent = forward_ad.unpack_dual(torch.tensor([1.0]))
    ...     print(primal, tangent)
    tensor([1.]) None
    """

    primal: Tensor
    tangent: Tensor | None


def enter_dual_level() -> int:
    """Enters a level, on which dual tensors can be created, and returns its number, 0.

    Raises:
        RuntimeError: If a level is already active.

    >>> import tensorgrad as torch
    >>> from tensorgrad.autograd import forward_ad
    >>> level = forward_ad.enter_dual_level()
    >>> x = forward_ad.make_dual(torch.tensor(3.0), torch.tensor(1.0))
    >>> forward_ad.unpack_dual(x * x).tangent  # d(x²)/dx
    tensor(6.)
    >>> forward_ad.exit_dual_level()
    """
    if _levels:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    _levels.append([])
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """Exits the level: its tensors no longer have tangents.

    Args:
        level: Its number; by default that of the level entered last.

    Raises:
        RuntimeError: If there is none, or `level` was not entered last.

    >>> import tensorgrad as torch
    >>> from tensorgrad.autograd import forward_ad
    >>> level = forward_ad.enter_dual_level()
    >>> x = forward_ad.make_dual(torch.tensor(3.0), torch.tensor(1.0))
    >>> forward_ad.exit_dual_level(level=level)
    >>> print(forward_ad.unpack_dual(x).tangent)
    None
    """
    if not _levels or level not in (None, len(_levels) - 1):
        raise RuntimeError(
            "Trying to exit a forward AD level that was not the last one that was created. This is not supported."
        )
    _levels.pop()


class dual_level:
    """A context manager that enters and exits a dual level.

    >>> import tensorgrad as torch
    >>> from tensorgrad.autograd import forward_ad
    >>> with forward_ad.dual_level():
    ...     x = forward_ad.make_dual(torch.tensor(0.0), torch.tensor(2.0))
    ...     forward_ad.unpack_dual(x.sin()).tangent  # cos(0) · 2
    tensor(2.)
    """

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *exception: Any) -> None:
        exit_dual_level()


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """Returns a dual tensor: `tensor` with a tangent, sharing its memory.

    Raises:
        RuntimeError: Outside a level or if the shapes differ.
        ValueError: For integers.

    >>> import tensorgrad as torch
    >>> from tensorgrad.autograd import forward_ad
    >>> with forward_ad.dual_level():
    ...     x = forward_ad.make_dual(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 0.5]))
    ...     forward_ad.unpack_dual(x**3).tangent
    tensor([3., 6.])
    """
    if not _levels:
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first."
        )
    for what, given in (("primal", tensor), ("tangent", tangent)):
        if not (given.is_floating_point() or given.is_complex()):
            raise ValueError(f"Expected {what} to be floating point or complex, but got: {given.dtype}")
    if tensor.shape != tangent.shape:
        raise RuntimeError(
            "Trying to set a forward gradient that has a different size than that of the original Tensor, this is not "
            f"supported. Tensor is of size {list(tensor.shape)} while the given forward gradient is of size "
            f"{list(tangent.shape)}."
        )
    with enable_grad():
        dual = tensor.view_as(tensor) if tensor.requires_grad else tensor.detach().requires_grad_()
    _levels[-1].append((dual, tangent))
    return dual


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """Returns the value of a tensor, and its derivative along the tangents of the dual tensors it depends on.

    Args:
        tensor: Any tensor.

    Returns:
        The pair `(primal, tangent)`, two tensors of the same shape; the tangent is None without dual inputs.

    >>> import tensorgrad as torch
    >>> from tensorgrad.autograd import forward_ad
    >>> with forward_ad.dual_level():
    ...     x = forward_ad.make_dual(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 0.0]))
    ...     forward_ad.unpack_dual(x.prod()).tangent  # ∂(x₀ x₁)/∂x₀
    tensor(2.)
    """
    duals = _levels[-1] if _levels else []
    if not duals or not tensor.requires_grad:
        return UnpackedDualTensor(tensor, None)
    differentiable = _differentiable(tensor, duals)
    tangent = _pushed(tensor, duals, differentiable)
    if tangent is None:
        return UnpackedDualTensor(tensor, None)
    return UnpackedDualTensor(tensor if differentiable else tensor.detach(), tangent)


def _differentiable(result: Tensor, duals: list) -> bool:
    """Whether the tangent depends on anything that requires grad, other than the dual tensors themselves."""
    if not GRAD.enabled:
        return False
    made_here = {id(d) for d, _ in duals if d.is_leaf}
    leaves = (t for t in reachable([edge_of(result)[0]]) if isinstance(t, Tensor))
    return any(t.requires_grad for _, t in duals) or any(id(t) not in made_here for t in leaves)


def _pushed(result: Tensor, duals: list, differentiable: bool) -> Tensor | None:
    with enable_grad():
        v = result.new_zeros(result.shape).requires_grad_()
        back = grad(result, [d for d, _ in duals], v, create_graph=True, allow_unused=True)
    reached = [(g, t) for g, (_, t) in zip(back, duals, strict=True) if g is not None]
    if not reached:
        return None
    gradients, tangents = zip(*reached, strict=True)
    (tangent,) = grad(gradients, v, tangents, True, differentiable)
    return tangent
