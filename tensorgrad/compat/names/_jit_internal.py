"""`torch._jit_internal`: the helpers behind `torch.jit` that other packages use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Dict, Final, List, Optional, Tuple, Union  # noqa: F401, UP035  (libraries import them from here)

boolean_dispatched: dict[Callable, dict[str, Any]] = {}  # result of `boolean_dispatch` -> its arguments


def boolean_dispatch(
    arg_name: str,
    arg_index: int,
    default: bool,
    if_true: Callable,
    if_false: Callable,
    module_name: str | None,
    func_name: str | None,
) -> Callable:
    """Combines two functions into one that chooses between them by a boolean argument.

    Args:
        arg_name: The name of the boolean argument.
        arg_index: Its position when passed positionally.
        default: Its value when it is not passed.
        if_true: The function to call for True.
        if_false: The function to call for False.
        module_name: The `__module__` of the result.
        func_name: The `__name__` of the result.

    Raises:
        RuntimeError: If both functions have a docstring.

    >>> def both(x, with_index=False):
    ...     return x.max(0)
    >>> def one(x, with_index=False):
    ...     return x.max()
    >>> largest = torch.nn.functional.boolean_dispatch("with_index", 1, False, both, one, __name__, "largest")
    >>> largest(torch.tensor([3, 4])), largest(torch.tensor([3, 4]), True).indices
    (tensor(4), tensor(1))
    """

    def chosen(*args: Any, **kwargs: Any) -> Any:
        choice = kwargs.get(arg_name, args[arg_index] if arg_index < len(args) else default)
        return (if_true if choice else if_false)(*args, **kwargs)

    described = [function for function in (if_true, if_false) if function.__doc__ is not None]
    if len(described) == 2:
        raise RuntimeError("only one function can have a docstring")
    if described:
        chosen.__doc__ = if_true.__doc__ = if_false.__doc__ = described[0].__doc__
    chosen.__module__, chosen.__name__ = module_name or chosen.__module__, func_name or chosen.__name__
    boolean_dispatched[chosen] = {
        "if_true": if_true, "if_false": if_false, "index": arg_index, "default": default, "arg_name": arg_name,
    }  # fmt: skip
    return chosen


class BroadcastingListCls:
    """TorchScript's annotation for a scalar or a list of fixed length: `BroadcastingList2[int]`."""

    def __getitem__(self, types: Any) -> None:
        return None


BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = BroadcastingListCls()
BroadcastingList4 = BroadcastingList5 = BroadcastingList6 = BroadcastingList1


def _copy_to_script_wrapper(fn: Any) -> Any:
    """Returns the method unchanged. (TorchScript would copy it to the scripted module.)

    >>> from tensorgrad._jit_internal import _copy_to_script_wrapper
    >>> _copy_to_script_wrapper(len) is len
    True
    """
    return fn
