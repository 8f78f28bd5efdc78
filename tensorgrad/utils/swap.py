"""`torch.utils.swap_tensors`."""

from __future__ import annotations

import weakref

from tensorgrad.tensor import Tensor

_SLOTS = ("_array", "_memory", "_edge", "_grad", "_view", "_hooks", "_requires_grad")


def swap_tensors(t1: Tensor, t2: Tensor) -> None:
    """Swaps two tensors in place, including their classes and attributes: every reference to one then sees the other.

    Do not run backward afterwards on a graph recorded with either tensor: its gradients have the old shapes.

    Raises:
        RuntimeError: If there is a weak reference to one of them.

    >>> a, b = torch.ones(2), torch.nn.Parameter(torch.zeros(3))
    >>> torch.utils.swap_tensors(a, b)
    >>> a, b
    (Parameter containing:
    tensor([0., 0., 0.], requires_grad=True), tensor([1., 1.]))
    """
    for name, tensor in (("t1", t1), ("t2", t2)):
        if weakref.getweakrefs(tensor):
            raise RuntimeError(f"Cannot swap {name} because it has weakref associated with it")
    for slot in _SLOTS:
        first, second = getattr(t1, slot), getattr(t2, slot)
        setattr(t1, slot, second)
        setattr(t2, slot, first)
    t1.__dict__, t2.__dict__ = t2.__dict__, t1.__dict__
    t1.__class__, t2.__class__ = t2.__class__, t1.__class__
