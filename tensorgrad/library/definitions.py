"""Defines operators, and registers kernels and rules for them: `torch.library.Library`, `define`, `impl`, ..."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tensorgrad.devices import device as device_of
from tensorgrad.library import operators
from tensorgrad.library.dispatch_keys import name_of
from tensorgrad.library.operators import Operator
from tensorgrad.library.schema import parse

__all__ = [
    "Library", "define", "fallthrough_kernel", "impl", "impl_abstract", "register_autocast", "register_autograd",
    "register_fake", "register_kernel", "register_vmap",
]  # fmt: skip

_defining: set[str] = set()  # namespaces with a Library of kind DEF
_KEYS = {"cpu": "CPU", "cuda": "CUDA", "meta": "Meta"}
_OWN = ("aten", "prim", "prims")  # namespaces of operators that are not defined this way


def fallthrough_kernel(*args: Any, **kwargs: Any) -> Any:
    """The kernel that stands for "none": passed to `Library.impl`, it leaves the operator as it is.

    Raises:
        NotImplementedError: If it is called.

    >>> torch.library.fallthrough_kernel()
    Traceback (most recent call last):
    NotImplementedError: fallthrough_kernel() should never be called.
    """
    raise NotImplementedError("fallthrough_kernel() should never be called.")


def _called_from() -> str:
    """Where a registration is, for errors."""
    frame = sys._getframe(1)
    while frame.f_back is not None and "/tensorgrad/library/" in frame.f_code.co_filename.replace("\\", "/"):
        frame = frame.f_back
    return f"registered at {frame.f_code.co_filename}:{frame.f_lineno}"


class Library:
    """Operators of one namespace, and kernels for them. When it is deleted, what it added is gone.

    Args:
        ns: the namespace: operators are `torch.ops.ns.name`.
        kind: "DEF" for a new namespace, "FRAGMENT" for more operators of one, "IMPL" for kernels only.
        dispatch_key: the key that `impl` registers kernels for by default.

    >>> library = torch.library.Library("docs", "DEF")
    >>> library.define("double(Tensor x) -> Tensor")
    'double'
    >>> library.impl("double", lambda x: x * 2, "CompositeImplicitAutograd")
    >>> torch.ops.docs.double(torch.ones(2))
    tensor([2., 2.])
    """

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("IMPL", "DEF", "FRAGMENT"):
            raise ValueError(f"Unsupported kind:  {kind}")
        if (ns in _OWN or ns in _defining) and kind == "DEF":
            raise RuntimeError(
                f"Only a single TORCH_LIBRARY can be used to register the namespace {ns}; please put all of your "
                "definitions in a single TORCH_LIBRARY block.  If you were trying to specify implementations, consider "
                "using TORCH_LIBRARY_IMPL (which can be duplicated).  If you really intended to define operators for a "
                "single namespace in a distributed way, you can use TORCH_LIBRARY_FRAGMENT to explicitly indicate this."
            )
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key
        self._undo: list[Callable[[], None]] = []
        if kind == "DEF":
            _defining.add(ns)
            self._undo.append(lambda: _defining.discard(ns))
        weakref.finalize(self, _undo_all, self._undo).atexit = False

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})>"

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Defines an operator by its schema, and returns its name.

        Raises:
            RuntimeError: If the schema is wrong, or the operator exists.
            ValueError: If `alias_analysis` is neither empty nor "CONSERVATIVE".
        """
        if alias_analysis not in ("", "FROM_SCHEMA", "CONSERVATIVE"):
            raise RuntimeError(f"Invalid alias_analysis type {alias_analysis}")
        if self.kind == "IMPL" or self.ns in _OWN:
            raise RuntimeError(f"{self!r}: operators cannot be defined in it")
        parsed = parse(schema)
        if "::" not in parsed.name:
            parsed = parsed._replace(name=f"{self.ns}::{parsed.name}")
        operator = operators.add(parsed, _called_from())
        operator.tags = list(tags) if isinstance(tags, list | tuple) else [tags]
        self._undo.append(lambda: operators.remove(operator))
        return parsed._full_name.partition("::")[2]

    def impl(
        self,
        op_name: Any,
        fn: Callable,
        dispatch_key: str = "",
        *,
        with_keyset: bool = False,
        allow_override: bool = False,
    ) -> None:
        """Registers a kernel of an operator.

        Args:
            op_name: the operator, or its name.
            fn: the kernel: takes what the operator takes.
            dispatch_key: what it is for: "CPU", "CUDA", "Meta", "CompositeExplicitAutograd" (all devices),
                "CompositeImplicitAutograd" (all devices, and differentiable as it is) or "Autograd".
            with_keyset: not supported: kernels are given no dispatch keys.
            allow_override: whether it may replace another.

        Raises:
            TypeError: If the kernel cannot be called.
            RuntimeError: If there is no such operator, or a kernel for it.
            NotImplementedError: For PyTorch's own operators, and with `with_keyset`.
        """
        if not callable(fn):
            raise TypeError(f"Input function is required to be a callable but found type {type(fn)}")
        if with_keyset:
            raise NotImplementedError("Library.impl: there are no dispatch keys to pass to a kernel (with_keyset=True)")
        name = op_name if isinstance(op_name, str) else op_name.name()
        name = name if "::" in name else f"{self.ns}::{name}"
        if name.partition("::")[0] in _OWN:
            raise NotImplementedError(
                f"Library.impl: {name} is an operator of PyTorch's own; register a kernel for it with "
                "tensorgrad.ops.dispatch.OpDispatch.register"
            )
        if fn is fallthrough_kernel or operators.exists_as_a_row(name):  # ours bring their own rules
            return
        operator = operators.find(name)
        key = name_of(dispatch_key or self.dispatch_key) or "CompositeImplicitAutograd"
        if key in operator.kernels and not allow_override:
            raise RuntimeError(
                f"This is not allowed since there's already a kernel registered from python overriding {name}'s "
                f"behavior for {key} dispatch key and {self.ns} namespace."
            )
        before = operator.kernels.get(key)
        operator.kernels[key] = fn
        self._undo.append(lambda: _restore(operator, key, fn, before))

    def _register_fake(self, op_name: str, fn: Callable, _stacklevel: int = 1, *, allow_override: bool = False) -> None:
        register_fake(op_name if "::" in op_name else f"{self.ns}::{op_name}", fn, lib=self)

    def _destroy(self) -> None:
        """Removes what it added."""
        _undo_all(self._undo)


def _undo_all(undo: list[Callable[[], None]]) -> None:
    while undo:
        undo.pop()()


def _restore(operator: Operator, key: str, fn: Callable, before: Callable | None) -> None:
    if operator.kernels.get(key) is fn:
        if before is None:
            del operator.kernels[key]
        else:
            operator.kernels[key] = before


@contextmanager
def _scoped_library(*args: Any, **kwargs: Any) -> Iterator[Library]:
    """A Library that ends with a `with` block."""
    library = Library(*args, **kwargs)
    try:
        yield library
    finally:
        library._destroy()


_libraries: dict[str, list[Library]] = {}  # those that the functions below make; they stay


def _fragment(namespace: str) -> Library:
    library = Library(namespace, "FRAGMENT")
    _libraries.setdefault(namespace, []).append(library)
    return library


def define(qualname: Any, schema: Any, *args: Any, lib: Library | None = None, tags: Any = ()) -> Any:
    """Defines an operator by its schema.

    Args:
        qualname: its name, `ns::name`. (Or, as it was: the Library, and then the name and alias analysis.)
        schema: the schema, without the name.
        lib: the library that it belongs to, and whose end is its end.
        tags: kept with it.

    Raises:
        ValueError: If the name has no namespace, or the schema is none.

    >>> torch.library.define("docs2::triple", "(Tensor x) -> Tensor")
    >>> @torch.library.impl("docs2::triple", "default")
    ... def triple(x):
    ...     return x * 3
    >>> torch.ops.docs2.triple(torch.ones(2))
    tensor([3., 3.])
    """
    if isinstance(qualname, Library):  # the former kind: a decorator
        name = qualname.define(schema, *args)

        def decorate(function: Callable) -> Callable:
            qualname.impl(name, function)
            return function

        return decorate
    if not isinstance(qualname, str):
        raise ValueError(f"define(qualname, schema): expected qualname to be instance of str, got {type(qualname)}")
    namespace, found, name = qualname.partition("::")
    if not found:
        raise ValueError(f"Expected `mylib::myop`, with a namespace and a name, but got {qualname!r}")
    if not schema.strip().startswith("("):
        raise ValueError(
            f'define(qualname, schema, ...): expected schema to look like e.g. "(Tensor x) -> Tensor" but got '
            f'"{schema}"'
        )
    (lib or _fragment(namespace)).define(name + schema, "", tags=tags)
    return None


def _named(op: Any) -> str:
    """The name of an operator that is given by name, as an overload, or as what `custom_op` returns."""
    if isinstance(op, str):
        return op
    if hasattr(op, "_qualname"):
        return op._qualname
    if hasattr(op, "name"):
        return op.name()
    raise ValueError(f"expected an operator or its name, but got {type(op).__name__}")


def impl(qualname: Any, types: Any, func: Any = None, *, lib: Library | None = None) -> Any:
    """Registers a kernel of an operator for devices; without one, returns a decorator that does.

    Args:
        qualname: the operator's name. (Or, as it was: the Library, the name and the dispatch key.)
        types: a device type or several, such as "cpu"; or "default" for all, with derivatives of what it is made of.
        func: the kernel.
        lib: the library whose end is the kernel's end.

    >>> torch.library.define("docs3::f", "(Tensor x) -> Tensor")
    >>> torch.library.impl("docs3::f", "cpu", lambda x: x + 1)
    >>> torch.ops.docs3.f(torch.ones(2))
    tensor([2., 2.])
    """
    if isinstance(qualname, Library):
        library, name, key = qualname, types, func or ""

        def decorate(function: Callable) -> Callable:
            library.impl(name, function, key)
            return function

        return decorate
    given = (types,) if isinstance(types, str) else tuple(types)
    keys = ["CompositeExplicitAutograd" if t == "default" else _key(t) for t in given]

    def register(function: Callable) -> Callable:
        library = lib or _fragment(_named(qualname).partition("::")[0])
        for key in keys:
            library.impl(_named(qualname), function, key, allow_override=True)
        return function

    if func is None:
        return register
    register(func)
    return None


def _key(device_type: str) -> str:
    """The dispatch key of a device type. Raises: RuntimeError for one that does not exist."""
    kind = device_of(device_type).type
    return _KEYS.get(kind, kind.upper())


def _rule(op: Any, func: Any, put: Callable[[Operator, Callable], None], lib: Library | None = None) -> Any:
    """Registers a rule of an operator; without the function, returns a decorator that does."""
    name = _named(op)

    def register(function: Callable) -> Callable:
        if operators.exists_as_a_row(name):  # it brings its own
            return function
        put(operators.find(name), function)
        return function

    if func is None:
        return register
    return register(func)


def register_kernel(op: Any, device_types: Any, func: Any = None, /, *, lib: Library | None = None) -> Any:
    """Registers the kernel of an operator for devices; without one, returns a decorator that does.

    Args:
        op: the operator, or its name.
        device_types: a device type or several, such as "cpu"; None for all.
        func: the kernel.
        lib: the library whose end is the kernel's end.

    >>> torch.library.define("docs4::f", "(Tensor x) -> Tensor")
    >>> @torch.library.register_kernel("docs4::f", "cpu")
    ... def f(x):
    ...     return x + 1
    >>> torch.ops.docs4.f(torch.ones(2))
    tensor([2., 2.])
    """
    found = operators.DEFINED.get(_named(op))
    if found is not None and found.custom is not None:
        return found.custom.register_kernel(device_types, func)
    return impl(op, "default" if device_types is None else device_types, func, lib=lib)


def register_fake(
    op: Any, func: Any = None, /, *, lib: Library | None = None, _stacklevel: int = 1, allow_override: bool = False
) -> Any:
    """Registers what an operator does with meta tensors: it returns a tensor of the right shape and dtype.

    Args:
        op: the operator, or its name.
        func: takes what the operator takes; without it, a decorator is returned.
        lib: accepted for compatibility.

    >>> torch.library.define("docs5::f", "(Tensor x) -> Tensor")
    >>> @torch.library.register_fake("docs5::f")
    ... def _(x):
    ...     return torch.empty_like(x)
    >>> torch.ops.docs5.f(torch.empty(2, device="meta")).shape
    torch.Size([2])
    """
    return _rule(op, func, lambda operator, function: setattr(operator, "fake", function))


def impl_abstract(qualname: Any, func: Any = None, *, lib: Library | None = None, _stacklevel: int = 1) -> Any:
    """The former name of `register_fake`."""
    return register_fake(qualname, func, lib=lib)


def register_autograd(
    op: Any, backward: Callable, /, *, setup_context: Callable | None = None, lib: Library | None = None
) -> None:
    """Registers the derivative of an operator.

    Args:
        op: the operator, or its name.
        backward: `backward(ctx, *gradients)` returns one gradient, or None, for each argument: for a list of tensors, a
            list.
        setup_context: `setup_context(ctx, inputs, output)` stores on `ctx` what `backward` needs; of operators with
            arguments by keyword, it is also given `keyword_only_inputs`.
        lib: accepted for compatibility.

    Raises:
        RuntimeError: If the operator does not exist, or writes to its arguments.

    >>> torch.library.define("docs6::f", "(Tensor x, float k) -> Tensor")
    >>> torch.library.impl("docs6::f", "cpu", lambda x, k: torch.from_numpy(x.numpy() * k))
    >>> def keep(ctx, inputs, output):
    ...     ctx.k = inputs[1]
    >>> torch.library.register_autograd("docs6::f", lambda ctx, g: (g * ctx.k, None), setup_context=keep)
    >>> x = torch.ones(2, requires_grad=True)
    >>> torch.ops.docs6.f(x, 3.0).sum().backward()
    >>> x.grad
    tensor([3., 3.])
    """
    name = _named(op)
    if operators.exists_as_a_row(name):
        return
    operator = operators.find(name)
    schema = operator._schema
    if schema.is_mutable:
        raise RuntimeError(
            f"Cannot register autograd formula for non-functional operator {operator.custom or operator} with schema "
            f"{schema}. Please create a functional operator and register an autograd formula for that."
        )
    if any(a.kwarg_only and a.type.startswith("Tensor") for a in schema.arguments):
        raise NotImplementedError(
            "register_autograd with kwarg-only Tensor args. In the original definition of the op, please make your "
            f"tensors not kwarg-only. Got: {schema}"
        )
    operator.backward, operator.setup_context = backward, setup_context


def register_vmap(op: Any, func: Any = None, /, *, lib: Library | None = None) -> Any:
    """Registers how an operator acts on a batch, for `torch.vmap`. Without it, samples are computed one by one.

    Args:
        op: the operator, or its name.
        func: `func(info, in_dims, *args)` returns `(results, out_dims)`; `info.batch_size` is the number of samples.
        lib: accepted for compatibility.

    >>> torch.library.define("docs7::f", "(Tensor x) -> Tensor")
    >>> torch.library.impl("docs7::f", "cpu", lambda x: torch.from_numpy(x.numpy() + 1))
    >>> @torch.library.register_vmap("docs7::f")
    ... def _(info, in_dims, x):
    ...     return torch.ops.docs7.f(x), in_dims[0]
    >>> torch.vmap(torch.ops.docs7.f)(torch.ones(2, 2))
    tensor([[2., 2.],
            [2., 2.]])
    """
    return _rule(op, func, lambda operator, function: setattr(operator, "vmap", function))


def register_autocast(op: Any, device_type: str, cast_inputs: Any, /, *, lib: Library | None = None) -> None:
    """Registers a dtype to which the floating-point tensors of an operator are cast under `torch.autocast`.

    >>> torch.library.define("docs8::f", "(Tensor x) -> Tensor")
    >>> torch.library.impl("docs8::f", "cpu", lambda x: x.clone())
    >>> torch.library.register_autocast("docs8::f", "cpu", torch.float16)
    >>> with torch.autocast("cpu"):
    ...     torch.ops.docs8.f(torch.ones(2)).dtype
    torch.float16
    """
    if device_of(device_type).type not in ("cpu", "cuda"):
        raise ValueError(f"Unknown device type: {device_type}")
    operators.find(_named(op)).autocast[device_type] = cast_inputs
