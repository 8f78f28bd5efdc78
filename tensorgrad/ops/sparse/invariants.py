"""Whether constructors of sparse tensors check the rules that kernels do not rely on."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any


class check_sparse_tensor_invariants:
    """A context or decorator in which constructors check all rules of sparse tensors, as `check_invariants=True` does.

    Indices outside of a tensor are refused always; the other rules (order, no repetitions) only here.

    >>> with torch.sparse.check_sparse_tensor_invariants():
    ...     torch.sparse_coo_tensor([[1, 0]], [1.0, 2.0], (2,), is_coalesced=True)
    Traceback (most recent call last):
        ...
    RuntimeError: cannot set is_coalesced to true if indices correspond to uncoalesced COO tensor
    """

    on = False

    def __init__(self, enable: bool = True):
        self.state = bool(enable)
        self.saved: tuple[bool] | None = None

    @staticmethod
    def is_enabled() -> bool:
        """Returns whether the rules are checked."""
        return check_sparse_tensor_invariants.on

    @staticmethod
    def enable() -> None:
        """Switches the checks on for the process."""
        check_sparse_tensor_invariants.on = True

    @staticmethod
    def disable() -> None:
        """Switches the checks off for the process."""
        check_sparse_tensor_invariants.on = False

    def __enter__(self) -> None:
        if self.saved is not None:
            raise RuntimeError("This context manager is already activated. Use a different instance for nesting.")
        self.saved = (check_sparse_tensor_invariants.on,)
        check_sparse_tensor_invariants.on = self.state

    def __exit__(self, *exception: Any) -> None:
        assert self.saved is not None
        check_sparse_tensor_invariants.on, self.saved = self.saved[0], None

    def __call__(self, function: Callable) -> Callable:
        @wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            with type(self)(self.state):
                return function(*args, **kwargs)

        return checked
