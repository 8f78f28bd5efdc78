"""`torch.autograd.grad_mode`: the modes of autograd, and the multithreading setting of backward."""

from __future__ import annotations

from tensorgrad.autograd.modes import (
    GRAD,
    ModeDecorator,
    Switch,
    enable_grad,
    inference_mode,
    no_grad,
    set_grad_enabled,
)
from tensorgrad.system.per_thread import PerThread

__all__ = ["enable_grad", "inference_mode", "no_grad", "set_grad_enabled", "set_multithreading_enabled"]


class _Threads(PerThread):
    allowed = True


_THREADS = _Threads()


class set_multithreading_enabled(Switch):
    """Sets whether backward may use several threads; takes effect immediately, and as a context manager is restored.

    Here each pass runs in the thread that starts it, so its nodes always run in the same order.

    >>> with torch.autograd.set_multithreading_enabled(False):
    ...     torch.autograd.is_multithreading_enabled()
    False
    """

    modes, name = _THREADS, "allowed"
    __call__ = ModeDecorator.__call__  # as a decorator it stays set, as in PyTorch


def is_multithreading_enabled() -> bool:
    """Returns the value last passed to `set_multithreading_enabled` in this thread.

    >>> torch.autograd.is_multithreading_enabled()
    True
    """
    return _THREADS.allowed


class _force_original_view_tracking(Switch):
    """Sets how a view's graph position is recomputed after a write; as a context manager, restores the setting.

    Args:
        mode: True replays all steps that led to the view; False may replace many steps by one with strides.

    >>> with torch.autograd._force_original_view_tracking(True):
    ...     torch.autograd.is_view_replay_enabled()
    True
    """

    modes, name = GRAD, "view_replay"


def is_view_replay_enabled() -> bool:
    """Returns the value last passed to `_force_original_view_tracking` in this thread.

    >>> torch.autograd.is_view_replay_enabled()
    False
    """
    return GRAD.view_replay
