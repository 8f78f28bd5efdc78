"""The state of `autocast` in a thread: which devices' ops are cast, and to what; and functions to query and set it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from tensorgrad import devices, dtypes
from tensorgrad.autograd.modes import GRAD
from tensorgrad.dispatch.autocast_ops import ALONE, LISTS, PARTLY, TOLD
from tensorgrad.errors import warn
from tensorgrad.rows import switches
from tensorgrad.rows.kernel_tables import OPS
from tensorgrad.rows.switches import AUTOCAST, LOCAL, SLOW
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.tensor import PLAIN, Tensor, tensors_in

__all__ = [
    "autocast_decrement_nesting", "autocast_increment_nesting", "clear_autocast_cache", "get_autocast_cpu_dtype",
    "get_autocast_dtype", "get_autocast_gpu_dtype", "is_autocast_cache_enabled", "is_autocast_cpu_enabled",
    "is_autocast_enabled", "set_autocast_cache_enabled", "set_autocast_cpu_dtype", "set_autocast_cpu_enabled",
    "set_autocast_dtype", "set_autocast_enabled", "set_autocast_gpu_dtype",
]  # fmt: skip


class State:
    """An immutable state, except for `casts`.

    `dtypes` are the lower-precision dtypes set for devices, `on` the devices whose ops are cast, `nesting` the number
    of nested `autocast` contexts. `casts` contains the cast copies of parameters, until the outermost `autocast` ends.
    `listed` are the names of the ops whose arguments may be cast.
    """

    __slots__ = ("casts", "dtypes", "keeps", "listed", "nesting", "on")

    def __init__(self, on: frozenset[str], dtypes: dict[str, Any], keeps: bool, nesting: int, casts: dict):
        self.on, self.dtypes, self.keeps, self.nesting, self.casts = on, dtypes, keeps, nesting, casts
        self.listed = _listed(on)

    def cast(self, op, args: tuple) -> tuple:
        """Casts the arguments of an op: called by the slow path before every op that is `listed`."""
        for device in self.on:
            args = self._cast(op.name, device, args)
        return args

    def _cast(self, name: str, device: str, args):
        lists = LISTS.get(device)
        if lists is None:
            return args
        if name in lists.shorter:
            return all_to(args, device, self.shorter(device), self)
        if name in lists.full:
            return all_to(args, device, dtypes.float32)
        if name in lists.widest:
            found = {t.dtype for t in tensors_in(args) if _castable(t, device)}
            if len(found) > 1:
                return all_to(args, device, functools.reduce(dtypes.promote_types, found))
        return args

    def shorter(self, device: str) -> dtypes.dtype:
        """Returns the dtype that the ops of a device are cast to."""
        return self.dtypes.get(device) or (dtypes.float16 if device == "cuda" else dtypes.bfloat16)

    def composite(self, function, *args, **kwargs):
        """Calls a function of several ops that is cast as a whole (called by its guard); inside, nothing is cast.

        Raises: RuntimeError if the function is not allowed under `autocast`.
        """
        name = function.__name__
        device = next((t.device.type for t in tensors_in((*args, *kwargs.values()))), "")
        if device not in self.on or not _is_one(name, device, args, kwargs):
            return function(*args, **kwargs)
        if name in LISTS[device].refused:
            raise RuntimeError(LISTS[device].refused[name])
        values = self._cast(name, device, (*args, *kwargs.values()))
        LOCAL.autocast = None
        try:
            return function(*values[: len(args)], **dict(zip(kwargs, values[len(args) :], strict=True)))
        finally:
            LOCAL.autocast = self

    def shortened(self, tensor: Tensor, dtype) -> Tensor:
        """Casts a tensor to a lower-precision dtype; a parameter's copy is cached until the parameter is written."""
        kept = self.keeps and tensor._requires_grad is True and tensor._edge is None and tensor._view is None
        if not kept or tensor.dtype is not dtypes.float32:
            return _to(tensor, dtype)
        key, version = (id(tensor), dtype, GRAD.enabled), tensor._version
        found = self.casts.get(key)
        if found is None or found[1] != version:
            found = self.casts[key] = tensor, version, _to(tensor, dtype)
        return found[2]


@functools.cache
def _listed(on: frozenset[str]) -> frozenset[str]:
    """Returns the names on the devices' lists."""
    lists = [LISTS[device] for device in on if device in LISTS]
    return frozenset().union(*(names for each in lists for names in (each.shorter, each.full, each.widest)))


def _is_one(name: str, device: str, args: tuple, kwargs: dict) -> bool:
    """Whether a composite, for these arguments, is a single op in PyTorch: on a device's lists, or on none."""
    if name in PARTLY and not PARTLY[name](*args, **kwargs):
        return False
    if name in TOLD:
        return True
    return device in LISTS and (name in ALONE or any(name in names for names in LISTS[device]))


def _castable(tensor: Tensor, device: str) -> bool:
    dtype = tensor.dtype
    if not dtype.is_floating_point or dtype is dtypes.float64:
        return False
    return STORAGES[tensor._array.__class__].device_type == device


def _to(tensor: Tensor, dtype) -> Tensor:
    """Casts a tensor; if nothing but autocast is on, without asking what else there is."""
    if SLOW == AUTOCAST and tensor.__class__ in PLAIN:
        return OPS["to_copy"].compiled.plain(tensor, dtype)
    return tensor.to(dtype)


def all_to(values, device: str, dtype, state: State | None = None):
    """Casts all tensors of a device in nested values to a dtype; through the cache of `state`, if given."""
    cast = [
        (v if v.dtype is dtype or not _castable(v, device) else state.shortened(v, dtype) if state else _to(v, dtype))
        if v.__class__ in PLAIN or isinstance(v, Tensor)
        else all_to(v, device, dtype, state)
        if isinstance(v, list | tuple) and any(isinstance(x, Tensor) for x in v)
        else v
        for v in values
    ]
    return tuple(cast) if isinstance(values, tuple) else cast


# --- this thread's state -------------------------------------------------------------------------------------------

_START = State(frozenset(), {}, True, 0, {})


def current() -> State:
    """Returns the current state."""
    return LOCAL.autocast or _START


def change(**what: Any) -> None:
    """Replaces the state by one that differs in `what`. In the initial state, ops take the fast path."""
    before = LOCAL.autocast
    old = before or _START
    names = ("on", "dtypes", "keeps", "nesting")
    new: Any = tuple(what.get(name, getattr(old, name)) for name in names)
    after = None
    if new != tuple(getattr(_START, name) for name in names):
        after = State(new[0], new[1], new[2], new[3], {} if before is None else before.casts)
    if (after is None) != (before is None):
        switches.switch("autocast", after is not None)
    LOCAL.autocast = after


@contextlib.contextmanager
def again(state: State) -> Iterator[None]:
    """A context manager in which ops are cast as in a state that `current()` returned."""
    before = current()
    change(on=state.on, dtypes=state.dtypes, keeps=state.keeps, nesting=before.nesting + 1)
    try:
        yield
    finally:
        if current().nesting == 1:
            clear_autocast_cache()
        change(on=before.on, dtypes=before.dtypes, keeps=before.keeps, nesting=before.nesting)


def _known(name: str, device_type: Any) -> str:
    if not isinstance(device_type, str):
        raise _wrong(name, "device_type", 1, "str", device_type)
    return devices.device(device_type).type  # raises an error for unknown types


def _wrong(name: str, argument: str, position: int, wanted: str, got: Any) -> TypeError:
    return TypeError(
        f"{name}(): argument '{argument}' (position {position}) must be {wanted}, not {type(got).__name__}"
    )


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Returns whether the ops of this thread are currently cast.

    Raises:
        TypeError or RuntimeError: If `device_type` is not a device type.

    >>> with torch.autocast("cpu"):
    ...     torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")
    (True, False)
    """
    return _known("is_autocast_enabled", device_type) in current().on


def set_autocast_enabled(*args: Any, **kwargs: Any) -> None:
    """Enables or disables casting the ops of this thread on a device.

    Takes `(device_type, enabled)`; or `(enabled)` for "cuda".

    Raises:
        TypeError: For any other arguments.
        RuntimeError: If `device_type` is not a device type.

    >>> torch.set_autocast_enabled("cpu", True)
    >>> (torch.ones(2, 2) @ torch.ones(2, 2)).dtype
    torch.bfloat16
    >>> torch.set_autocast_enabled("cpu", False)
    """
    given = dict(zip(("device_type", "enabled") if len(args) + len(kwargs) == 2 else ("enabled",), args, strict=False))
    both = {**given, **kwargs}
    if len(args) + len(kwargs) != len(both) or not {"enabled"} <= both.keys() <= {"device_type", "enabled"}:
        words = [*(type(a).__name__ for a in args), *(f"{k}={type(v).__name__}" for k, v in kwargs.items())]
        raise TypeError(
            f"set_autocast_enabled() received an invalid combination of arguments - got ({', '.join(words)}), but "
            "expected one of:\n * (str device_type, bool enabled)\n * (bool enabled)\n"
        )
    device, enabled = both.get("device_type", "cuda"), both["enabled"]
    if not isinstance(device, str):
        raise _wrong("set_autocast_enabled", "device_type", 1, "str", device)
    if not isinstance(enabled, bool):
        raise _wrong("set_autocast_enabled", "enabled", len(both), "bool", enabled)
    switch(_known("set_autocast_enabled", device), enabled)


def switch(device: str, enabled: bool) -> None:
    """Enables or disables casting the ops of a device."""
    on = current().on
    change(on=on | {device} if enabled else on - {device})


def get_autocast_dtype(device_type: str) -> dtypes.dtype:
    """Returns the lower-precision dtype of a device.

    Raises:
        TypeError or RuntimeError: If `device_type` is not a device type.

    >>> torch.get_autocast_dtype("cpu")
    torch.bfloat16
    >>> with torch.autocast("cpu", dtype=torch.float16):
    ...     torch.get_autocast_dtype("cpu")
    torch.float16
    """
    return current().shorter(_known("get_autocast_dtype", device_type))


def set_autocast_dtype(device_type: str, dtype: dtypes.dtype) -> None:
    """Sets the dtype that ops on a device are cast to.

    Raises:
        TypeError or RuntimeError: If `device_type` is not a device type.
        TypeError: If `dtype` is not a dtype.

    >>> torch.set_autocast_dtype("cpu", torch.float16)
    >>> with torch.autocast("cpu"):
    ...     (torch.ones(2, 2) @ torch.ones(2, 2)).dtype
    torch.float16
    >>> torch.set_autocast_dtype("cpu", torch.bfloat16)
    """
    device = _known("set_autocast_dtype", device_type)
    if not isinstance(dtype, dtypes.dtype):
        raise _wrong("set_autocast_dtype", "dtype", 2, "torch.dtype", dtype)
    change(dtypes=with_dtype(device, dtype))


def with_dtype(device: str, dtype: dtypes.dtype) -> dict[str, dtypes.dtype]:
    """The lower-precision dtypes of all devices after setting one of them: only those that are not the default."""
    return {d: t for d, t in {**current().dtypes, device: dtype}.items() if t is not _START.shorter(d)}


def autocast_increment_nesting() -> int:
    """Increments the number of nested `autocast` contexts in this thread, and returns it.

    >>> torch.autocast_increment_nesting(), torch.autocast_decrement_nesting()
    (1, 0)
    """
    change(nesting=current().nesting + 1)
    return current().nesting


def autocast_decrement_nesting() -> int:
    """Decrements the number of nested `autocast` contexts in this thread, and returns it: at 0 clear the cache.

    >>> with torch.autocast("cpu"):
    ...     torch.autocast_increment_nesting(), torch.autocast_decrement_nesting()
    (2, 1)
    """
    change(nesting=current().nesting - 1)
    return current().nesting


def is_autocast_cache_enabled() -> bool:
    """Returns whether the cast copies of parameters are cached.

    >>> with torch.autocast("cpu", cache_enabled=False):
    ...     torch.is_autocast_cache_enabled()
    False
    """
    return current().keeps


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Sets whether the cast copies of parameters are cached.

    Raises:
        TypeError: If `enabled` is not a boolean.

    >>> torch.set_autocast_cache_enabled(False)
    >>> torch.is_autocast_cache_enabled()
    False
    >>> torch.set_autocast_cache_enabled(True)
    """
    change(keeps=_boolean(enabled))


def clear_autocast_cache() -> None:
    """Clears the cached copies of parameters.

    >>> torch.clear_autocast_cache()
    """
    current().casts.clear()


# --- the older names, one for each device -----------------------------------------------------------------------------


def _boolean(enabled: Any) -> bool:
    if not isinstance(enabled, bool):
        raise TypeError(f"enabled must be a bool (got {type(enabled).__name__})")
    return enabled


def _old(old: str, new: str) -> None:
    warn(f"torch.{old} is deprecated. Please use torch.{new} instead.", DeprecationWarning)


def is_autocast_cpu_enabled() -> bool:
    """The older name of `is_autocast_enabled("cpu")`.

    >>> with torch.autocast("cpu"):
    ...     torch.is_autocast_cpu_enabled()
    True
    """
    _old("is_autocast_cpu_enabled()", "is_autocast_enabled('cpu')")
    return is_autocast_enabled("cpu")


def set_autocast_cpu_enabled(enabled: bool) -> None:
    """The older name of `set_autocast_enabled("cpu", enabled)`.

    Raises:
        TypeError: If `enabled` is not a boolean.

    >>> torch.set_autocast_cpu_enabled(False)
    """
    _boolean(enabled)
    _old("set_autocast_cpu_enabled(enabled)", "set_autocast_enabled('cpu', enabled)")
    switch("cpu", enabled)


def get_autocast_cpu_dtype() -> dtypes.dtype:
    """The older name of `get_autocast_dtype("cpu")`.

    >>> torch.get_autocast_cpu_dtype()
    torch.bfloat16
    """
    _old("get_autocast_cpu_dtype()", "get_autocast_dtype('cpu')")
    return get_autocast_dtype("cpu")


def get_autocast_gpu_dtype() -> dtypes.dtype:
    """The older name of `get_autocast_dtype("cuda")`.

    >>> torch.get_autocast_gpu_dtype()
    torch.float16
    """
    _old("get_autocast_gpu_dtype()", "get_autocast_dtype('cuda')")
    return get_autocast_dtype("cuda")


def set_autocast_cpu_dtype(dtype: dtypes.dtype) -> None:
    """The older name of `set_autocast_dtype("cpu", dtype)`.

    Raises:
        TypeError: If `dtype` is not a dtype.

    >>> torch.set_autocast_cpu_dtype(torch.bfloat16)
    """
    _set_dtype("cpu", "cpu", dtype)


def set_autocast_gpu_dtype(dtype: dtypes.dtype) -> None:
    """The older name of `set_autocast_dtype("cuda", dtype)`.

    Raises:
        TypeError: If `dtype` is not a dtype.

    >>> torch.set_autocast_gpu_dtype(torch.float16)
    """
    _set_dtype("gpu", "cuda", dtype)


def _set_dtype(old: str, device: str, dtype: Any) -> None:
    if not isinstance(dtype, dtypes.dtype):
        raise TypeError(f"dtype must be a torch.dtype (got {type(dtype).__name__})")
    _old(f"set_autocast_{old}_dtype(dtype)", f"set_autocast_dtype('{device}', dtype)")
    set_autocast_dtype(device, dtype)
