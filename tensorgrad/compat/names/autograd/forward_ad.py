"""`torch.autograd.forward_ad`: derivatives along a direction, carried by "dual" tensors.

    with dual_level():
        x = make_dual(primal, tangent)
        derivative = unpack_dual(f(x)).tangent

Every op computes the tangents of its results together with their values: see transforms/forward.py, and for the rules
transforms/tangents.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tensorgrad.rows.switches import LOCAL
from tensorgrad.tensor import Tensor
from tensorgrad.transforms.forward import Level, check_shape

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]

_levels: list[Level] = []  # at most one
_current_level = -1  # its number, as libraries read it


class UnpackedDualTensor(NamedTuple):
    """The two parts of a dual tensor; `tangent` is None for tensors that do not depend on a dual tensor.

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

    >>> from tensorgrad.autograd import forward_ad
    >>> level = forward_ad.enter_dual_level()
    >>> x = forward_ad.make_dual(torch.tensor(3.0), torch.tensor(1.0))
    >>> forward_ad.unpack_dual(x * x).tangent  # d(x²)/dx
    tensor(6.)
    >>> forward_ad.exit_dual_level()
    """
    global _current_level
    if _levels:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    _levels.append(Level(of_duals=True).__enter__())
    _current_level = 0
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """Exits the level: its tensors no longer have tangents.

    Args:
        level: Its number; by default that of the level entered last.

    Raises:
        RuntimeError: If there is none, or `level` was not entered last.

    >>> from tensorgrad.autograd import forward_ad
    >>> level = forward_ad.enter_dual_level()
    >>> x = forward_ad.make_dual(torch.tensor(3.0), torch.tensor(1.0))
    >>> forward_ad.exit_dual_level(level=level)
    >>> print(forward_ad.unpack_dual(x).tangent)
    None
    """
    global _current_level
    if level is None and not _levels:
        raise RuntimeError("Dual level must be a positive number.")
    if not _levels or level not in (None, len(_levels) - 1):
        raise RuntimeError(
            "Trying to exit a forward AD level that was not the last one that was created. This is not supported."
        )
    _current_level = -1
    _levels.pop().__exit__()


class dual_level:
    """A context manager that enters and exits a dual level.

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
    if level not in (None, 0):
        raise RuntimeError("Invalid level given to _make_dual")
    check_shape(tensor, tangent)
    current = _levels[-1]
    if current.tangent_of(tensor) is not None:
        raise RuntimeError(
            "Making a dual Tensor based on a Tensor that already has a forward gradient at the same level 0 is not "
            "supported."
        )
    if current.tangent_of(tangent) is not None:
        raise RuntimeError(
            "Setting a forward grad that itself has a forward gradient at the same level0 is not supported."
        )
    return current.dual(tensor, tangent)


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """Returns the value of a tensor, and its derivative along the tangents of the dual tensors it depends on.

    Args:
        tensor: Any tensor.

    Returns:
        The pair `(primal, tangent)`, two tensors of the same shape; the tangent is None without dual inputs.

    >>> from tensorgrad.autograd import forward_ad
    >>> with forward_ad.dual_level():
    ...     x = forward_ad.make_dual(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 0.0]))
    ...     forward_ad.unpack_dual(x.prod()).tangent  # ∂(x₀ x₁)/∂x₀
    tensor(2.)
    """
    tangent = _levels[-1].tangent_of(tensor) if _levels and _levels[-1] in LOCAL.transforms else None
    if tangent is None:
        return UnpackedDualTensor(tensor, None)
    return UnpackedDualTensor(_levels[-1].primal(tensor), tangent)
