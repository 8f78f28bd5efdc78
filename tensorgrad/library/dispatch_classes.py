"""Classes of tensors with a `__torch_dispatch__`: it is given the operators of PyTorch's registry that a call runs.

A call with a tensor of such a class first asks its `__torch_function__`, as for every class. What that lets through
arrives here as a function of torch or a method, and is passed on as the operator of that name with its arguments in the
registry's form: `x[0]` as `aten.select.int(x, 0, 0)`, `x.float()` as `aten._to_copy.default(x, dtype=torch.float32)`.
Functions that PyTorch makes of others (`MADE_OF_OTHERS`), or that are not operators, run, and the class sees these
others. The `TorchDispatchMode`s that are on (dispatch_modes.py) are given the same operators before the classes are.

Autograd is above: what such a class computes is recorded as the op that was called (operator_gradients.py), and what it
calls meanwhile is not.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodWrapperType
from typing import Any

import tensorgrad
from tensorgrad._ops import MADE_OF_OTHERS, OpOverload, OpOverloadPacket, ops
from tensorgrad.autograd.modes import is_grad_enabled, no_grad
from tensorgrad.library.operator_gradients import recorded, tracked
from tensorgrad.library.operators_of_functions import FUNCTIONAL, FUNCTIONS
from tensorgrad.library.operators_of_rows import ROWS
from tensorgrad.overriding.function_classes import without_defaults
from tensorgrad.overriding.torch_function import asking, asking_property
from tensorgrad.rows.switches import DISPATCH, LOCAL
from tensorgrad.storage.wrapper_subclass import NoMemory
from tensorgrad.tensor import Tensor, tensors_in

# Methods that take several numbers where the operator takes a list.
_LISTS = frozenset(("expand", "flip", "new_empty", "new_ones", "new_zeros", "permute", "repeat", "view"))
# Operators that reduce several dimensions: a number stands for one.
_DIMS = frozenset(("amax", "amin", "flip", "logsumexp", "mean", "nanmean", "nansum", "std", "sum", "var"))
# Operators for whose second argument a number stands in the place of a tensor.
_NUMBERS_AS_TENSORS = frozenset(("add", "add_", "div", "div_", "mul", "mul_", "sub", "sub_", "true_divide"))


def see(cls: type) -> None:
    """Called with every class that has a `__torch_dispatch__`: from the first one on, calls look for them."""
    if not DISPATCH:
        DISPATCH.append(dispatch)
    for name in ("__deepcopy__", "__iter__"):
        if getattr(cls, name) is getattr(Tensor, name):
            setattr(cls, name, asking(getattr(Tensor, name)))
    if cls.item is Tensor.item:  # type: ignore[attr-defined]
        cls.item = _item  # type: ignore[attr-defined]
    if cls.data in (Tensor.data, asking_property(Tensor.data)):  # type: ignore[attr-defined]
        cls.data = property(lambda self: self.detach(), _set_data, None, Tensor.data.__doc__)  # type: ignore[attr-defined]


def _set_data(self: Tensor, value: Tensor) -> None:
    """`Tensor.data = …` of such a class: a tensor without memory keeps its attributes, as in PyTorch."""
    if self._array.__class__ is NoMemory:
        self._array = value._array
    else:
        Tensor.data.fset(self, value)  # type: ignore[attr-defined]


def _item(self: Tensor) -> Any:
    """`Tensor.item` of a class with a `__torch_dispatch__`."""
    if self.numel() != 1:
        raise RuntimeError(f"a Tensor with {self.numel()} elements cannot be converted to Scalar")
    return call(ops.aten._local_scalar_dense.default, (self,), {})


def dispatches(value: Any) -> bool:
    """Returns whether the class of a value has a `__torch_dispatch__`."""
    return isinstance(value, Tensor) and hasattr(type(value), "__torch_dispatch__")


def dispatch(function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Calls the `__torch_dispatch__` of the modes that are on, or of the arguments' classes, in place of a function.

    Returns:
        What it returns; `NotImplemented` if there is no such mode or class, or the function is made of others.

    Raises:
        NotImplementedError: If the function is neither an operator nor made of some; or if gradients are recorded of
            something that is written in place.
        TypeError: If all classes decline.
    """
    tensors = list(tensors_in((*args, *kwargs.values())))
    of_classes = any(map(dispatches, tensors))
    if not (of_classes or LOCAL.dispatch_modes):
        return NotImplemented
    if isinstance(function, MethodWrapperType):  # the getter of a property, which is made of operators
        return NotImplemented
    row = getattr(function, "op", None)
    if of_classes and tracked(tensors):
        return _tracked(function, row, args, kwargs)
    if isinstance(function, OpOverload):
        name = function.overloadpacket.__name__
        if function.namespace != "aten" or not (name in MADE_OF_OTHERS or name == "to"):
            return call(function, args, kwargs)
    elif isinstance(function, OpOverloadPacket):
        name, row = function.__name__, None
    else:
        name = function.__name__ if row is None else row.name
        args, kwargs = without_defaults(function, args, kwargs)
        if row is None:
            name, args, kwargs = _in_place(function, name, args, kwargs)
    special = _form_of(function, row, name)
    if special is not None:
        made = special(*args, **kwargs)
        if made is not NotImplemented or row is None or isinstance(function, OpOverload):
            return made
    elif name not in MADE_OF_OTHERS and hasattr(ops.aten, name):
        args = _listed(name, args)
        if name == "sort" and kwargs.get("stable") is not None:
            args, kwargs = args[:1], {**dict(zip(("dim", "descending"), args[1:], strict=False)), **kwargs}
        return call(overload_of(name, args, kwargs), args, kwargs)
    if row is None or isinstance(function, OpOverload) or (not of_classes and "out" in kwargs):
        return NotImplemented
    if row.twin is not None:
        return row.twin(*_all_arguments(row, args, kwargs))
    if not of_classes:
        return NotImplemented
    raise NotImplementedError(f"{row.name}: not an operator of PyTorch's registry, so no __torch_dispatch__ is called")


def _in_place(function: Callable, name: str, args: tuple, kwargs: dict[str, Any]) -> tuple[str, tuple, dict[str, Any]]:
    """The name and arguments of a function, as the registry writes `silu(x, inplace=True)`: `silu_(x)`."""
    if not function.__module__.endswith("nn.functional"):
        return name, args, kwargs
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    given = dict(zip(names, args, strict=False)) | kwargs
    if given.pop("inplace", False) is not True or f"{name}_" in MADE_OF_OTHERS or not hasattr(ops.aten, f"{name}_"):
        return name, args, kwargs
    listed = names[: names.index("inplace")]
    late = {key: value for key, value in given.items() if key not in listed[: len(args)]}
    return f"{name}_", tuple(given[key] for key in listed[: len(args)]), late


def _form_of(function: Callable, row: Any, name: str) -> Callable | None:
    """What calls the operators of a function whose arguments are not those of the operator of its name, or None."""
    if row is not None and not isinstance(function, OpOverload):
        return ROWS.get(name)
    if function.__module__.endswith("nn.functional") and name in FUNCTIONAL:
        return FUNCTIONAL[name]
    return FUNCTIONS.get(name)


def _tracked(function: Callable, row: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Calls the classes' `__torch_dispatch__` in place of an op, and records it. All else runs, and is made of ops.

    Raises:
        NotImplementedError: If something is written in place, or an operator of a user's own is called.
    """
    name = function.__name__.partition(".")[0]
    if isinstance(function, OpOverload | OpOverloadPacket):
        if (function.namespace if isinstance(function, OpOverload) else function._namespace) != "aten":
            return call(function, args, kwargs) if isinstance(function, OpOverload) else NotImplemented
        row = None
    if (row is None and _writes(name) and hasattr(Tensor, name)) or kwargs.get("out") is not None:
        form = overload_of(name, args, kwargs) if hasattr(ops.aten, name) else name
        raise NotImplementedError(
            f"{form}: a tensor of a class with __torch_dispatch__ is written, or read, in place where gradients are "
            "recorded; use torch.no_grad(), or the form that is not in place"
        )
    makes = (row is None or not row.wrt) and (name.endswith("_like") or name.startswith("new_"))
    if makes or name in ("__deepcopy__", "detach"):  # no gradient flows
        with no_grad():
            return dispatch(function, args, kwargs)
    if row is None:
        return NotImplemented
    arguments = _all_arguments(row, args, kwargs)
    if row.through_twin:
        return row.twin(*arguments)
    if not row.wrt:
        with no_grad():
            return dispatch(function, args, kwargs)
    return recorded(row, arguments, lambda: dispatch(function, args, kwargs))


def call(operator: OpOverload, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Calls the `__torch_dispatch__` of the innermost mode with an operator, then those of the classes.

    Of two classes, the subclass is asked first.

    Raises:
        NotImplementedError: If a tensor of such a class requires grad, and gradients are recorded.
        TypeError: If all decline.
    """
    found = [t for t in tensors_in((*args, *kwargs.values())) if dispatches(t)]
    modes = LOCAL.dispatch_modes
    if modes:
        types = tuple({type(t): None for t in found})
        LOCAL.dispatch_modes = modes[:-1]
        try:
            result = modes[-1].__torch_dispatch__(operator, types, args, kwargs)
        finally:
            LOCAL.dispatch_modes = modes
        if result is not NotImplemented:
            return args[0] if _writes(operator.overloadpacket.__name__) else result
    if is_grad_enabled() and operator.overloadpacket.__name__ not in ("alias", "detach", "detach_"):
        for tensor in found:
            if tensor.requires_grad:
                raise NotImplementedError(
                    f"{operator}: a tensor of class {type(tensor).__name__} requires grad, and gradients are not "
                    "recorded of what a __torch_dispatch__ computes; use torch.no_grad(), or torch.autograd.Function"
                )
    types = tuple(sorted({type(t): None for t in found}, key=lambda cls: -len(cls.__mro__)))
    for cls in types:
        result = cls.__torch_dispatch__(operator, types, args, kwargs)
        if result is not NotImplemented:
            return args[0] if _writes(operator.overloadpacket.__name__) else result
    asked = [f"  - mode object {modes[-1]!r}"] if modes else []
    raise TypeError(
        f"Multiple dispatch failed for 'torch._ops.{operator}'; all __torch_dispatch__ handlers returned "
        "NotImplemented:\n\n" + "\n".join([*asked, *(f"  - tensor subclass {cls!r}" for cls in types)])
    )


def _writes(name: str) -> bool:
    return name[-1] == "_" and name[-2:] != "__"


def _all_arguments(row: Any, args: tuple, kwargs: dict[str, Any]) -> list[Any]:
    """The arguments of a row in its order, those left out among them."""
    names, function = [p.name for p in row.params], row.compiled.call
    positional = [p.name for p in row.params if not p.keyword]
    defaults = dict(zip(reversed(positional), reversed(function.__defaults__ or ()), strict=False))
    given = {**defaults, **(function.__kwdefaults__ or {}), **dict(zip(names, args, strict=False)), **kwargs}
    return [given[name] for name in names]


def _listed(name: str, args: tuple) -> tuple:
    """Arguments with lists where the registry has them: `[1, 0]` for `x.permute(1, 0)`, `[1]` for `x.sum(1)`."""
    if name in _LISTS and len(args) > 1 and isinstance(args[1], int):
        args = (args[0], args[1:])
    if name in _DIMS and len(args) > 1 and isinstance(args[1], int) and not isinstance(args[1], bool):
        args = (args[0], [args[1]], *args[2:])
    return tuple(
        list(value)
        if isinstance(value, tuple) and value and all(n is None or isinstance(n, int | Tensor) for n in value)
        else value
        for value in args
    )


# Operators whose overload follows from the number of arguments by position.
_BY_COUNT = {
    "arange": {1: "default", 2: "start", 3: "start_step"},
    "eye": {1: "default", 2: "m"},
    "randint": {2: "default", 3: "low"},
    "randint_like": {2: "default", 3: "low_dtype"},
    "random_": {1: "default", 2: "to", 3: "from"},
}


# Overloads of `where` by the two values that it chooses from.
_WHERE = {
    ("Tensor", "Tensor"): "self", ("Tensor", "Scalar"): "ScalarOther", ("Scalar", "Tensor"): "ScalarSelf",
    ("Scalar", "Scalar"): "Scalar",
}  # fmt: skip


def _repeats(args: tuple, kwargs: dict[str, Any]) -> str:
    """The overload of `repeat_interleave`: with a tensor or a number of repeats, or of repeats alone."""
    if len(args) < 2 and ("repeats" not in kwargs or not args):
        return "Tensor"
    return "self_Tensor" if isinstance(args[1] if len(args) > 1 else kwargs["repeats"], Tensor) else "self_int"


def overload_of(name: str, args: tuple, kwargs: dict[str, Any]) -> OpOverload:
    """The overload of an operator that fits the arguments."""
    packet = getattr(ops.aten, name)
    known = packet.overloads()
    second = args[1] if len(args) > 1 else kwargs.get("other", kwargs.get("exponent"))
    three = (args[0] if args else None, second, args[2] if len(args) > 2 else kwargs.get("value"))
    tensors = ["Tensor" if isinstance(value, Tensor) else "Scalar" for value in three]
    has_dim = kwargs.get("dim", second) is not None
    wanted = [
        "out" if kwargs.get("out") is not None else "",
        _WHERE[tensors[1], tensors[2]] if name == "where" and len(args) == 3 else "",
        _repeats(args, kwargs) if name == "repeat_interleave" else "",
        "default" if name in ("copy_", "floor_divide") else "",
        "Tensor_mode" if kwargs.get("rounding_mode") is not None else "",
        "float" if name == "bernoulli_" and not isinstance(second, Tensor) else "",
        _BY_COUNT.get(name, {}).get(len(args), ""),
        "float_float" if name == "normal" and tensors[:2] == ["Scalar", "Scalar"] else "",
        "correction" if name in ("std", "std_mean", "var", "var_mean") else "",
        "stable" if kwargs.get("stable") is not None else "",
        "_".join(tensors[:2]),
        tensors[2] if name.removesuffix("_") in ("masked_fill", "index_fill", "lerp") else "",
        "Scalar" if tensors[0] == "Scalar" and "Tensor_Scalar" in known else "",
        "Tensor" if tensors[1] == "Tensor" or name in _NUMBERS_AS_TENSORS else "Scalar",
        "dims" if has_dim and isinstance(kwargs.get("dim", second), tuple | list) else "",
        *(["dim", "dim_int", "dim_IntList"] if has_dim and not isinstance(second, Tensor) else []),
        "other" if isinstance(second, Tensor) else "",
        "dtype" if isinstance(second, tensorgrad.dtype) else "",
        "default",
    ]
    return getattr(packet, next((overload for overload in wanted if overload in known), known[0]))
