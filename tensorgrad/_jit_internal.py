"""`torch._jit_internal`: those names behind `torch.jit` that files outside of PyTorch use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

boolean_dispatched: dict[Callable, dict[str, Any]] = {}  # what `boolean_dispatch` made, and of what


def boolean_dispatch(
    arg_name: str,
    arg_index: int,
    default: bool,
    if_true: Callable,
    if_false: Callable,
    module_name: str | None,
    func_name: str | None,
) -> Callable:
    """One function of two: a boolean among the arguments says which of them is called.

    Args:
        arg_name: the name of that argument.
        arg_index: its place, where it is given without its name.
        default: what it is where it is not given.
        if_true: the function for True.
        if_false: the function for False.
        module_name: the module that the function is said to be from.
        func_name: its name.

    Raises:
        RuntimeError: both functions have a docstring.

    >>> import tensorgrad as torch
    >>> def both(x, with_index=False):
    ...     return x.max(0)
    >>> def one(x, with_index=False):
    ...     return x.max()
    >>> largest = torch.nn.functional.boolean_dispatch("with_index", 1, False, both, one, __name__, "largest")
    >>> largest(torch.tensor([3, 4])), largest(torch.tensor([3, 4]), True).indices
    (tensor(4), tensor(1))
    """

    def chosen(*args: Any, **kwargs: Any) -> Any:
        told = kwargs.get(arg_name, args[arg_index] if arg_index < len(args) else default)
        return (if_true if told else if_false)(*args, **kwargs)

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
    """What annotates, for TorchScript, a number or a list of so many: `BroadcastingList2[int]`."""

    def __getitem__(self, types: Any) -> None:
        return None


BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = BroadcastingListCls()
BroadcastingList4 = BroadcastingList5 = BroadcastingList6 = BroadcastingList1
