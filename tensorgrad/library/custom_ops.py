"""Operators made of a Python function: `torch.library.custom_op`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tensorgrad.library import definitions, operators
from tensorgrad.library.inference import infer_schema

__all__ = ["CustomOpDef", "custom_op"]


def custom_op(
    name: str,
    fn: Callable | None = None,
    /,
    *,
    mutates_args: Any,
    device_types: Any = None,
    schema: str | None = None,
    tags: Any = None,
) -> Any:
    """Makes an operator of a function: one step for autograd, transforms and tracing, whatever the function does.

    Args:
        name: its name, `ns::name`; then it is also `torch.ops.ns.name`.
        fn: the function; without it, a decorator is returned.
        mutates_args: the names of the arguments that it writes to, or "unknown".
        device_types: a device type or several that it is the kernel for; None for all.
        schema: the schema, without the name; by default it follows from the function's annotations.
        tags: kept with it.

    Returns:
        A `CustomOpDef`, which can be called, and has methods that register a derivative and other kernels.

    Raises:
        ValueError: If annotations are missing, or of types that operators do not have.

    >>> import numpy
    >>> @torch.library.custom_op("docs9::cube", mutates_args=())
    ... def cube(x: torch.Tensor) -> torch.Tensor:
    ...     return torch.from_numpy(numpy.power(x.numpy(), 3))
    >>> @cube.register_fake
    ... def _(x):
    ...     return torch.empty_like(x)
    >>> def keep(ctx, inputs, output):
    ...     ctx.save_for_backward(*inputs)
    >>> def backward(ctx, g):
    ...     return 3 * ctx.saved_tensors[0] ** 2 * g
    >>> cube.register_autograd(backward, setup_context=keep)
    >>> x = torch.tensor([2.0], requires_grad=True)
    >>> cube(x).backward()
    >>> x.grad
    tensor([12.])
    """

    def decorate(function: Callable) -> CustomOpDef:
        text = infer_schema(function, mutates_args=mutates_args) if schema is None else schema
        namespace, found, own = name.partition("::")
        if not found:
            raise ValueError(f"Expected `mylib::myop`, with a namespace and a name, but got {name!r}")
        made = CustomOpDef(namespace, own, text, function, tags)
        if schema is not None and mutates_args != "unknown":
            written = {a.name for a in made._opoverload._schema.arguments if a.is_write}
            if written != set(mutates_args):
                raise ValueError(
                    "Attempted to create a custom op with `mutates_args={mutates_args}` and `schema={schema}. The "
                    f"schema suggests that the op mutates {written} which is different from what was provided to us in "
                    "`mutates_args`. Please make these consistent."
                )
        made.register_kernel(device_types)(function)
        return made

    return decorate if fn is None else decorate(fn)


class CustomOpDef:
    """An operator made of a function. `custom_op` makes it.

    Attributes: `_qualname` (`ns::name`), `_opoverload` (the operator in `torch.ops`).
    """

    def __init__(self, namespace: str, name: str, schema: str, fn: Callable, tags: Any = None) -> None:
        self._namespace, self._name, self._schema, self._init_fn = namespace, name, schema, fn
        existing = operators.DEFINED.get(f"{namespace}::{name}")
        if existing is not None and existing.custom is not None:  # run again, as in a notebook
            operators.remove(existing)
        self._lib = definitions._fragment(namespace)
        self._lib.define(name + schema, tags=tags or ())
        self._opoverload = operators.find(self._qualname)
        self._opoverload.custom = self

    @property
    def _qualname(self) -> str:
        return f"{self._namespace}::{self._name}"

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the operator."""
        return self._opoverload(*args, **kwargs)

    def register_kernel(self, device_types: Any, fn: Callable | None = None, /) -> Callable:
        """Registers the kernel for a device type, or several; None for all. Without one, returns a decorator."""

        def register(function: Callable) -> Callable:
            types = (
                [None] if device_types is None else [device_types] if isinstance(device_types, str) else device_types
            )
            for kind in types:
                key = operators.DEFAULT if kind is None else definitions._key(kind)
                self._lib.impl(self._name, function, key, allow_override=True)
            return function

        return register if fn is None else register(fn)

    def register_fake(self, fn: Callable, /) -> Callable:
        """Registers what the operator does with meta tensors. See `torch.library.register_fake`."""
        self._opoverload.fake = fn
        return fn

    def register_autograd(self, backward: Callable, /, *, setup_context: Callable | None = None) -> None:
        """Registers the derivative. See `torch.library.register_autograd`."""
        definitions.register_autograd(self._qualname, backward, setup_context=setup_context)

    def register_vmap(self, func: Callable | None = None) -> Any:
        """Registers how the operator acts on a batch. See `torch.library.register_vmap`."""
        return definitions.register_vmap(self._qualname, func)

    def register_autocast(self, device_type: str, cast_inputs: Any) -> None:
        """Registers the dtype for `torch.autocast`. See `torch.library.register_autocast`."""
        definitions.register_autocast(self._qualname, device_type, cast_inputs)

    def register_torch_dispatch(self, torch_dispatch_class: Any, fn: Callable | None = None, /) -> Any:
        """Raises: NotImplementedError. A class defines its `__torch_dispatch__` itself."""
        raise NotImplementedError(
            f"{self!r}.register_torch_dispatch: classes define their __torch_dispatch__; a rule for one operator is "
            "not kept"
        )

    @contextmanager
    def set_kernel_enabled(self, device_type: str, enabled: bool = True) -> Iterator[None]:
        """A context in which the kernel for a device is off, or on: without it, the one for all devices runs."""
        import logging

        key = definitions._key(device_type)
        before = set(self._opoverload.disabled)
        if key not in self._opoverload.kernels:
            action = "enable" if enabled else "disable"
            logging.getLogger(__name__).warning(
                "Attempted to %s kernel for %s but no kernel was registered for this device type.", action, device_type
            )
        self._opoverload.disabled = before - {key} if enabled else before | {key}
        try:
            yield
        finally:
            self._opoverload.disabled = before
