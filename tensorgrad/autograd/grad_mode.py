"""`torch.autograd.grad_mode`: the modes of autograd, and whether backward may use several threads."""

from __future__ import annotations

from tensorgrad.autograd.modes import GRAD, Switch, _Decorator, enable_grad, inference_mode, no_grad, set_grad_enabled
from tensorgrad.system.per_thread import PerThread

__all__ = ["enable_grad", "inference_mode", "no_grad", "set_grad_enabled", "set_multithreading_enabled"]


class _Threads(PerThread):
    allowed = True


_THREADS = _Threads()


class set_multithreading_enabled(Switch):
    """Says whether a backward pass may spread its nodes over threads, at once; as a context manager, restores it.

    Here each pass runs in the thread that starts it, so the order of its nodes is always that of one thread.

    >>> import tensorgrad as torch
    >>> with torch.autograd.set_multithreading_enabled(False):
    ...     torch.autograd.is_multithreading_enabled()
    False
    """

    modes, name = _THREADS, "allowed"
    __call__ = _Decorator.__call__  # as a decorator it stays switched, as PyTorch's does


def is_multithreading_enabled() -> bool:
    """What `set_multithreading_enabled` was last told in this thread.

    >>> import tensorgrad as torch
    >>> torch.autograd.is_multithreading_enabled()
    True
    """
    return _THREADS.allowed


class _force_original_view_tracking(Switch):
    """Says how a view's place in the graph is found anew after a write, at once; as a context manager, restores it.

    Args:
        mode: True repeats all the steps that led to the view; False may take one step by strides where they are many.

    >>> import tensorgrad as torch
    >>> with torch.autograd._force_original_view_tracking(True):
    ...     torch.autograd.is_view_replay_enabled()
    True
    """

    modes, name = GRAD, "view_replay"


def is_view_replay_enabled() -> bool:
    """What `_force_original_view_tracking` was last told in this thread.

    >>> import tensorgrad as torch
    >>> torch.autograd.is_view_replay_enabled()
    False
    """
    return GRAD.view_replay
