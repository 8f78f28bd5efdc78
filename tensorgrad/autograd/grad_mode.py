"""`torch.autograd.grad_mode`: the modes of autograd, and whether backward may use several threads."""

from __future__ import annotations

from tensorgrad.autograd.modes import GRAD, _Decorator, enable_grad, inference_mode, no_grad, set_grad_enabled
from tensorgrad.per_thread import PerThread

__all__ = ["enable_grad", "inference_mode", "no_grad", "set_grad_enabled", "set_multithreading_enabled"]


class _Threads(PerThread):
    allowed = True


_THREADS = _Threads()


class set_multithreading_enabled(_Decorator):
    """Says whether a backward pass may spread its nodes over threads, at once; as a context manager, restores it.

    Here each pass runs in the thread that starts it, so the order of its nodes is always that of one thread.

    >>> import tensorgrad as torch
    >>> with torch.autograd.set_multithreading_enabled(False):
    ...     torch.autograd.is_multithreading_enabled()
    False
    """

    def __init__(self, mode: bool):
        self.before, self.mode = _THREADS.allowed, bool(mode)
        _THREADS.allowed = self.mode

    def _copy(self):
        return set_multithreading_enabled(self.mode)

    def __enter__(self) -> None:
        _THREADS.allowed = self.mode

    def __exit__(self, *exception) -> None:
        _THREADS.allowed = self.before


def is_multithreading_enabled() -> bool:
    """What `set_multithreading_enabled` was last told in this thread.

    >>> import tensorgrad as torch
    >>> torch.autograd.is_multithreading_enabled()
    True
    """
    return _THREADS.allowed


class _force_original_view_tracking(_Decorator):
    """Says how a view's place in the graph is found anew after a write, at once; as a context manager, restores it.

    Args:
        mode: True repeats all the steps that led to the view; False may take one step by strides where they are many.

    >>> import tensorgrad as torch
    >>> with torch.autograd._force_original_view_tracking(True):
    ...     torch.autograd.is_view_replay_enabled()
    True
    """

    def __init__(self, mode: bool):
        self.before, self.mode = GRAD.view_replay, bool(mode)
        GRAD.view_replay = self.mode

    def _copy(self):
        return _force_original_view_tracking(self.mode)

    def __call__(self, function):
        GRAD.view_replay = self.before  # used as a decorator: the switch belongs inside the calls
        return super().__call__(function)

    def __enter__(self) -> None:
        GRAD.view_replay = self.mode

    def __exit__(self, *exception) -> None:
        GRAD.view_replay = self.before


def is_view_replay_enabled() -> bool:
    """What `_force_original_view_tracking` was last told in this thread.

    >>> import tensorgrad as torch
    >>> torch.autograd.is_view_replay_enabled()
    False
    """
    return GRAD.view_replay
