"""`torch.compile`: what it returns, its options, and what can be asked about it."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from tensorgrad.capture import region as regions
from tensorgrad.capture.region import LIMIT, RUNNING, Region
from tensorgrad.nn import Module

MODES = ("default", "lite", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")
OURS = ("tensorgrad", "inductor", "cudagraphs")  # names for plans, all of them
EAGER = ("eager", "aot_eager")
STANCES = (
    "default",
    "force_eager",
    "eager_on_recompile",
    "fail_on_recompile",
    "eager_then_compile",
    "aot_eager_then_compile",
)


class InvalidBackend(RuntimeError):
    """A backend that does not exist."""


class OptimizedModule(Module):
    """What `torch.compile(module)` returns: a module whose calls are run by plans where possible.

    It has the parameters of the module, under the prefix `_orig_mod.`, and gives all other attributes as the module has
    them.

    >>> from tensorgrad.capture.compiled import OptimizedModule
    >>> compiled = torch.compile(torch.nn.Linear(2, 3))
    >>> isinstance(compiled, OptimizedModule), list(compiled.state_dict())
    (True, ['_orig_mod.weight', '_orig_mod.bias'])
    """

    def __init__(self, module: Module, options: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__.pop("training")  # the module's
        self._orig_mod = module
        object.__setattr__(self, "_options", options)
        object.__setattr__(self, "_region", _region_of_module(module, module, options))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the module, or runs a plan."""
        return self._region(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            return self.__dict__["_modules"]["_orig_mod"]
        return getattr(self._orig_mod, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_orig_mod" or name in type(self).__dict__:
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._orig_mod, name)

    def train(self, mode: bool = True) -> Any:
        """Sets whether the module is training."""
        self._orig_mod.train(mode)
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        return OptimizedModule, (self._orig_mod, self._options)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._orig_mod)})


def compiled(
    model: Any,
    fullgraph: bool,
    dynamic: bool | None,
    backend: Any,
    mode: str | None,
    options: dict | None,
    disable: bool,
) -> Any:
    """What `torch.compile` makes of a function or module, once it has one."""
    if not callable(model):
        raise AssertionError(f"A callable function is expected, but {type(model)} is provided.")
    settings = checked(fullgraph, dynamic, backend, mode, options)
    if disable or getattr(model, "_torchdynamo_disable", False):
        return model
    if isinstance(model, Module):
        return OptimizedModule(model, settings)
    if isinstance(model, type):
        return model
    found = _region(model, settings)

    @functools.wraps(model)
    def call(*args: Any, **kwargs: Any) -> Any:
        return found(*args, **kwargs)

    call._torchdynamo_orig_callable = model  # type: ignore[attr-defined]
    call._region = found  # type: ignore[attr-defined]
    return call


def checked(
    fullgraph: bool, dynamic: bool | None, backend: Any, mode: str | None, options: dict | None
) -> dict[str, Any]:
    """The options of `torch.compile` that mean something here. Raises: RuntimeError for those that it does not have."""
    if mode is not None and options:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if mode is not None and mode not in MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(MODES)}")
    if not callable(backend) and backend not in OURS + EAGER:
        raise InvalidBackend(
            f"Invalid backend: {backend!r}, see `torch._dynamo.list_backends()` for available backends."
        )
    return {"fullgraph": bool(fullgraph), "backend": backend}


def _region(function: Callable, settings: dict[str, Any]) -> Any:
    backend = settings["backend"]
    if backend in EAGER:
        return _Eager(function)
    made = Region(function, settings["fullgraph"], LIMIT, backend if callable(backend) else None)
    regions.ALL.append(weakref.ref(made, regions.ALL.remove))
    for tell in regions.MADE:
        tell(made)
    return made


def _region_of_module(module: Module, call: Callable, settings: dict[str, Any]) -> Any:
    """The region for calls of a module by `call`: of a wrapper such as DDP, that of the module in it."""
    name = getattr(type(module), "_compiled_inside", None)
    inner = None if name is None else getattr(module, name)
    if inner is None or isinstance(inner, OptimizedModule) or settings["backend"] in EAGER:
        return _region(call, settings)
    present = inner.__dict__.get("_compiled_call_impl")
    return _Inside(call, inner, present if isinstance(present, Region) else _region(inner._call_eagerly, settings))


class _Inside(regions.states.Region):
    """A wrapper that runs as it is, except for calls of the module in it, which are run by plans meanwhile."""

    def __init__(self, function: Callable, module: Module, region: Any) -> None:
        self.function, self.region = function, region
        self._known = module.__dict__.setdefault("_compiled_call_impl", _Meanwhile(module._call_eagerly))
        module.__dict__["_hooked"] = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the wrapper."""
        before, RUNNING.inside = RUNNING.inside, (self._known, self.region)
        try:
            return self.function(*args, **kwargs)
        finally:
            RUNNING.inside = before

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["region"], name)  # what can be asked about it


class _Meanwhile(regions.states.Region):
    """A module's call: as it is, but by a region's plans within that of a compiled wrapper."""

    def __init__(self, function: Callable) -> None:
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the module."""
        known, region = RUNNING.inside
        return (region if known is self else self.function)(*args, **kwargs)


class _Eager(regions.states.Region):
    """The backends that run the program as it is."""

    def __init__(self, function: Callable) -> None:
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function."""
        return self.function(*args, **kwargs)

    def explain(self) -> str:
        """Says that it is eager."""
        return f"{regions.name_of(self.function)}\n  eager: the backend is 'eager'"


def region_of(function: Any) -> Any:
    """The region behind what `torch.compile` returned; None for anything else."""
    found = getattr(function, "__dict__", {}).get("_region")
    return found if found is not None else getattr(function, "__dict__", {}).get("_compiled_call_impl")


def compile_module(module: Any, *args: Any, **options: Any) -> None:
    """What `module.compile()` does: from now on, calls of the module itself are run by plans."""
    names = ("fullgraph", "dynamic", "backend", "mode", "options", "disable")
    given = dict(fullgraph=False, dynamic=None, backend="tensorgrad", mode=None, options=None, disable=False)
    given |= {**dict(zip(names, args, strict=False)), **options}
    unknown = given.keys() - set(names)
    if unknown:
        raise TypeError(f"compile() got an unexpected keyword argument '{min(unknown)}'")
    disable = given.pop("disable")
    settings = checked(**given)  # type: ignore[arg-type]
    if not disable:
        module.__dict__["_compiled_call_impl"] = _region_of_module(module, module._call_eagerly, settings)
        module.__dict__["_hooked"] = True


def reset() -> None:
    """Forgets all plans."""
    for reference in list(regions.ALL):
        found = reference()
        if found is not None:
            found.reset()


class set_stance:
    """Says how compiled functions run: "force_eager" as they are. A context, too, which ends that.

    >>> double = torch.compile(lambda x: 2 * x)
    >>> with torch.compiler.set_stance("force_eager"):
    ...     double(torch.ones(2))
    tensor([2., 2.])

    Raises:
        RuntimeError: for a stance that PyTorch does not have.
    """

    def __init__(
        self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None
    ) -> None:
        if stance not in STANCES:
            raise RuntimeError(f"invalid torch.compile stance '{stance}', expected one of {STANCES}")
        self.before, RUNNING.stance = RUNNING.stance, stance

    def __enter__(self) -> set_stance:
        return self

    def __exit__(self, *exception: Any) -> None:
        RUNNING.stance = self.before


def uncompiled(function: Callable) -> Callable:
    """A function that runs as it is, and within which nothing is compiled; a region that calls it stays eager."""

    @functools.wraps(function)
    def eager(*args: Any, **kwargs: Any) -> Any:
        before, RUNNING.stance = RUNNING.stance, "force_eager"
        try:
            return graph_break(function, args, kwargs)
        finally:
            RUNNING.stance = before

    eager._torchdynamo_disable = True  # type: ignore[attr-defined]
    return eager


def graph_break(function: Any = None, args: tuple = (), kwargs: Any = None) -> Any:
    """Called where a program asks for a graph break: a region that comes here stays eager (capture/watch.py)."""
    return None if function is None else function(*args, **(kwargs or {}))
