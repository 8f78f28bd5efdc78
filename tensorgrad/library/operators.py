"""Operators that are defined in Python: their schemas, kernels and rules, and what a call of one does.

A call looks for modes and classes that override it, fits its arguments to the schema, and then runs, from the outside:

1. the rule for batches, while `vmap` is on, and the derivative (`derivatives.py`);
2. the kernel for the device of its tensors, or the one for all devices; for meta tensors, the fake kernel.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorgrad
from tensorgrad._ops import MADE_OF_OTHERS, OpOverload, OpOverloadPacket, ops
from tensorgrad.autograd.modes import is_grad_enabled, no_grad
from tensorgrad.library import derivatives
from tensorgrad.library.dispatch_keys import EXCLUDED, name_of
from tensorgrad.library.schema import FunctionSchema
from tensorgrad.overriding import function_classes, function_modes
from tensorgrad.rows.switches import DISPATCH, LOCAL
from tensorgrad.storage.stubs import BY_DEVICE
from tensorgrad.system.per_thread import PerThread
from tensorgrad.tensor import PLAIN, Tensor, tensors_in

__all__ = ["Operator", "find"]

IMPLICIT = "CompositeImplicitAutograd"  # the kernel is made of ops, which have derivatives
DEFAULT = "CompositeExplicitAutograd"  # the kernel for all devices
DEFINED: dict[str, Operator] = {}  # `ns::name.overload` -> the operator


class _Local(PerThread):
    below: tuple = ()  # (operator, key) of kernels for autograd and autocast that are running in this thread


_LOCAL = _Local()


class Operator(OpOverload):
    """An operator, or one overload of it: `torch.ops.ns.name.default`."""

    def __init__(self, packet: Packet, schema: FunctionSchema, where: str = "") -> None:
        super().__init__(packet, schema.overload_name or "default")
        self._schema, self.where = schema, where
        self.tags: list[Any] = []
        self.kernels: dict[str, Callable] = {}  # by name of the dispatch key
        self.disabled: set[str] = set()
        self.custom: Any = None  # its `CustomOpDef`, if it was made by `custom_op`
        self.fake: Callable | None = None
        self.backward: Callable | None = None
        self.setup_context: Callable | None = None
        self.vmap: Callable | None = None
        self.autocast: dict[str, Any] = {}  # device type -> dtype

    @property
    def qualname(self) -> str:
        """`ns::name`, and `.overload` if it is not the default one."""
        return self._schema._full_name

    def has_kernel_for_dispatch_key(self, key: Any) -> bool:
        """Whether there is a kernel of that name."""
        return name_of(key) in self.kernels

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Runs the operator."""
        if LOCAL.function_modes:
            result = function_modes.call(self, args, kwargs)
            if result is not NotImplemented:
                return result
        values = (*args, *kwargs.values())
        if not LOCAL.inside_override:
            classes = {t.__class__: None for t in tensors_in(values) if overrides(t)}
            classes.update({value.__class__: None for value in function_classes.overriding(values)})
            if classes:
                return function_classes.call(self, tuple(classes), args, kwargs)
        if DISPATCH:
            result = DISPATCH[0](self, args, kwargs)
            if result is not NotImplemented:
                return result
        return self.run(*self._schema.bind(args, kwargs))

    def run(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Runs the operator with all its arguments."""
        if self.autocast:
            args, kwargs = self._cast(args, kwargs)
        tensors = list(tensors_in((*args, *kwargs.values())))
        outer = self._outer_kernel(tensors)
        if outer is not None:
            key, kernel = outer
            before, _LOCAL.below = _LOCAL.below, (*_LOCAL.below, (self, key))
            try:
                return kernel(*self._schema.without_defaults(args), **kwargs)
            finally:
                _LOCAL.below = before
        if IMPLICIT in self.kernels and self._kernel(tensors, implicit=False) is None:
            return self.kernels[IMPLICIT](*self._schema.without_defaults(args), **kwargs)
        own = self.custom is not None or self.backward is not None
        tracked = is_grad_enabled() and any(t.requires_grad for t in tensors)
        if (own and tracked and not self._schema.is_mutable) or (LOCAL.transforms and tensors):
            return derivatives.run(self, args, kwargs)
        if own:
            with no_grad():
                return self.compute(args, kwargs)
        return self.compute(args, kwargs)

    def compute(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Runs the kernel.

        Raises:
            NotImplementedError: If there is none for the device.
            RuntimeError: If a custom operator returns one of its arguments, or has no fake kernel.
        """
        tensors = list(tensors_in((*args, *kwargs.values())))
        kernel = self._kernel(tensors)
        if kernel is None:
            device = device_key(tensors)
            if device == "Meta":
                raise RuntimeError(
                    f"There was no fake impl registered for {self.custom or self}. This is necessary for "
                    f"torch.compile/export/fx tracing to work. Please use `{self._python_name()}.register_fake` to "
                    "add an fake impl."
                )
            raise NotImplementedError(
                f"Could not run '{self.qualname}' with arguments from the '{device}' backend. This could be "
                "because the operator doesn't exist for this backend, or was omitted during the selective/custom "
                f"build process (if using custom build). '{self.qualname}' is only available for these backends: "
                f"[{', '.join(sorted({*self.kernels, *(['Meta'] if self.fake else [])}))}]."
            )
        result = kernel(*self._schema.without_defaults(args), **kwargs)
        if self.custom is not None:
            self._check_aliases(tensors, result)
            for argument, value in zip(self._schema.arguments, (*args, *kwargs.values()), strict=False):
                if argument.is_write:
                    for tensor in tensors_in((value,)):
                        tensor._storage.version += 1
        return result

    def _python_name(self) -> str:
        function = getattr(self.custom, "_init_fn", None)
        return function.__name__ if function is not None else self.overloadpacket.__name__

    def _kernel(self, tensors: list[Tensor], implicit: bool = True) -> Callable | None:
        """The kernel for the device of the tensors."""
        meta = any(t.is_meta for t in tensors)
        if meta:
            return self.kernels.get("Meta") or self.fake or self.kernels.get(IMPLICIT if implicit else "")
        key = "CUDA" if any(t.is_cuda for t in tensors) else "CPU"
        names = [key, DEFAULT, *([IMPLICIT] if implicit else [])]
        return next((self.kernels[n] for n in names if n in self.kernels and n not in self.disabled), None)

    def _outer_kernel(self, tensors: list[Tensor]) -> tuple[str, Callable] | None:
        """A kernel that runs around the one for the device: for autocast, or for autograd."""
        if not any(key.startswith("Auto") for key in self.kernels):
            return None
        device = "CUDA" if any(t.is_cuda for t in tensors) else "CPU"
        wanted = ["AutogradMeta"] if any(t.is_meta for t in tensors) else [f"Autograd{device}"]
        wanted.append("Autograd")
        if tensorgrad.is_autocast_enabled(device.lower()):
            wanted.insert(0, f"Autocast{device}")
        for key in wanted:
            if key in self.kernels and key not in EXCLUDED.names and (self, key) not in _LOCAL.below:
                return key, self.kernels[key]
        return None

    def _check_aliases(self, given: list[Tensor], result: Any) -> None:
        seen = {id(t._storage) for t in given}
        for tensor in tensors_in((result,)):
            if id(tensor._storage) in seen:
                raise RuntimeError(
                    f"{self.overloadpacket.__name__} (with implementation in "
                    f"{getattr(self._kernel(given), '__module__', '?')}): The output of this custom operator (1) must "
                    "not also be an input to this custom operator and (2) may not alias any inputs to this custom "
                    "operator or other returns. The most common way to trigger this error is if we have y = "
                    "custom_op(x) and y and x are the same Tensor. Please instead return a clone of the offending "
                    "output tensor(s) (e.g. return x.clone()) or refactor the custom operator to not return y."
                )
            seen.add(id(tensor._storage))

    def _cast(self, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        for device, dtype in self.autocast.items():
            if tensorgrad.is_autocast_enabled(device):
                cast = functools.partial(_cast, device, dtype)
                return list(map(cast, args)), {name: cast(value) for name, value in kwargs.items()}
        return args, kwargs


def _cast(device: str, dtype: Any, value: Any) -> Any:
    """Floating-point tensors of a device in a dtype."""
    if isinstance(value, list | tuple):
        return type(value)(_cast(device, dtype, item) for item in value)
    wanted = isinstance(value, Tensor) and value.is_floating_point() and value.device.type == device
    return value.to(dtype) if wanted else value


def overrides(tensor: Tensor) -> bool:
    """Whether the class of a tensor has a `__torch_function__` of its own."""
    if tensor.__class__ in PLAIN:
        return False
    method = getattr(tensor.__class__, "__torch_function__", None)
    return getattr(method, "__func__", None) is not getattr(Tensor.__torch_function__, "__func__", None)  # type: ignore[attr-defined]


def device_key(tensors: list[Tensor]) -> str:
    """The name of the dispatch key of the device that an operator on these tensors runs on."""
    return "Meta" if any(t.is_meta for t in tensors) else "CUDA" if any(t.is_cuda for t in tensors) else "CPU"


class Packet(OpOverloadPacket):
    """An operator with all its overloads: `torch.ops.ns.name`. A call runs the first one that the arguments fit."""

    def __init__(self, namespace: str, name: str) -> None:
        super().__init__(name, self._run, namespace)
        self.defined: dict[str, Operator] = {}

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        if len(self.defined) == 1:
            return next(iter(self.defined.values()))(*args, **kwargs)
        failed: list[str] = []
        for operator in self.defined.values():
            try:
                operator._schema.bind(args, kwargs)
            except RuntimeError as error:
                if not list(function_classes.overriding((*args, *kwargs.values()))):
                    failed.append(str(error))
                    continue
            return operator(*args, **kwargs)
        raise RuntimeError(
            f"Overloaded torch operator invoked from Python failed to match any schema:\n{chr(10).join(failed)}"
        )

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Runs the operator."""
        return self._run(*args, **kwargs)

    def overloads(self) -> list[str]:
        """The names of the overloads."""
        return list(self.defined)

    def __getattr__(self, name: str) -> Any:
        defined = self.__dict__.get("defined", {})
        if name in defined:
            return defined[name]
        raise AttributeError(f"The underlying op of '{self}' has no overload name '{name}'")


def find(qualname: str) -> Operator:
    """Returns the operator of a name, `ns::name` or `ns::name.overload`. Raises: RuntimeError if there is none."""
    found = DEFINED.get(qualname.removesuffix(".default"))
    if found is None:
        raise RuntimeError(f"operator {qualname} does not exist")
    return found


def exists_as_a_row(qualname: str) -> bool:
    """Whether an operator of that name is one of ours, with a derivative and a shape rule of its own."""
    namespace, _, name = qualname.partition("::")
    return hasattr(getattr(ops, namespace), name.partition(".")[0]) and qualname not in DEFINED


def has_kernel(qualname: str, key: Any) -> bool:
    """Returns whether an operator has a kernel for a dispatch key: `torch._C._dispatch_has_kernel_for_dispatch_key`.

    PyTorch's own operators run on the CPU, the meta device and, if there is a GPU, on that; those that are made of
    others have a kernel for all devices.

    Raises:
        RuntimeError: If there is no such operator.

    >>> from tensorgrad.library.operators import has_kernel
    >>> has_kernel("aten::relu", "CPU"), has_kernel("aten::relu", "MPS"), has_kernel("aten::absolute", "CPU")
    (True, False, False)
    """
    name = name_of(key)
    if not exists_as_a_row(qualname):
        operator = find(qualname)
        return name in operator.kernels or (name == "Meta" and operator.fake is not None)
    if qualname.partition("::")[2].partition(".")[0] in MADE_OF_OTHERS:
        return name == IMPLICIT
    return name in ("CPU", "Meta", *(["CUDA"] if "cuda" in BY_DEVICE else []))


def add(schema: FunctionSchema, where: str) -> Operator:
    """Adds an operator to the table and to `torch.ops`. Raises: RuntimeError if it is there."""
    namespace, _, name = schema.name.partition("::")
    if schema._full_name in DEFINED:
        raise RuntimeError(
            f"Tried to register an operator ({schema}) with the same name and overload name multiple times. Each "
            "overload's schema should only be registered with a single call to def(). Duplicate registration: "
            f"{where}. Original registration: {DEFINED[schema._full_name].where}"
        )
    room = getattr(ops, namespace).__dict__
    packet = room.get(name)
    if not isinstance(packet, Packet):
        packet = room[name] = Packet(namespace, name)
    operator = Operator(packet, schema, where)
    packet.defined[schema.overload_name or "default"] = operator
    DEFINED[schema._full_name] = operator
    return operator


def remove(operator: Operator) -> None:
    """Removes an operator."""
    DEFINED.pop(operator.qualname, None)
    packet: Any = operator.overloadpacket
    packet.defined.pop(operator._overloadname, None)
    if not packet.defined:
        getattr(ops, packet._namespace).__dict__.pop(packet.__name__, None)
