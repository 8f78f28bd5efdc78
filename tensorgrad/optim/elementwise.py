"""The loop of all optimizers whose update treats every element by itself.

Such an update is a plain function over arrays, written once (in its optimizer's file) with the array module's in-place
operations. This file decides how it is run: directly for small parameters; block by block for large ones, so that its
many passes stay in the cache; on float32 copies for 16-bit parameters; and on tensors, by `recorded.py`, where autograd
is to look through the step (``differentiable=True``).

This is one of the few places outside the ops that touch a tensor's array: an update is not recorded, and writing it
with tensor ops would cost ten times as much for a small model.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

import tensorgrad as torch
from tensorgrad.dispatch.kernel_tables import LARGE, own_kernel
from tensorgrad.dtypes import F32
from tensorgrad.errors import check_one_device
from tensorgrad.kernels.numba.runtime import thread_pool
from tensorgrad.optim import optimizer
from tensorgrad.optim.optimizer import Optimizer, run_hooked
from tensorgrad.settings import _Settings as SETTINGS
from tensorgrad.storage.stubs import STORAGES, Storage
from tensorgrad.tensor import Tensor

# Elements per block. Measured on 4 M float32 elements, one thread, Adam: 16 K take 5.5 ms, 64 to 256 K 4.9-5.2 ms, all
# at once 6.5 ms (PyTorch 5.9 ms); and a layer of 784 × 128 is fastest (14 µs for SGD, PyTorch 18) as one block.
BLOCK = 131_072

# Where PyTorch has optimizers of these kinds, as its error messages list it.
CAPTURABLE_DEVICES = ["cuda", "xpu", "hpu", "privateuseone", "xla"]
FUSED_DEVICES = ["mps", "cuda", "xpu", "hpu", "cpu", "mtia", "privateuseone"]


class Elementwise(Optimizer):
    """An optimizer that moves each parameter by :attr:`_move`.

    A subclass says what it keeps of a parameter (:meth:`_begin`, :meth:`_names`), and which numbers its update needs:
    those that follow from a group's settings (:meth:`_fixed`), and those that change with time (:meth:`_moving`).
    """

    _move: ClassVar[Callable]  # _move(xp, x, (gradient, *state arrays), temporaries, numbers), a static method
    compiled = ""  # the name of the same update as a kernel over lists (kernels/numba/table.py, kernels/cuda/table.py)
    scratch = 1  # how many temporary arrays the update needs
    real = True  # does it treat real and imaginary parts of complex parameters as separate numbers?
    timeless = False  # are there no numbers that change with time?
    counters: tuple[str, ...] = ("step",)  # what of a parameter's state is a single number
    counted = "params and state_steps"  # the same in the words of PyTorch's errors
    capturable_devices: ClassVar[list[str]] = CAPTURABLE_DEVICES
    recorded_foreach = False  # does PyTorch take ``foreach=True`` along with ``differentiable=True``?
    older: ClassVar[dict[str, Any]] = {}  # the settings that old checkpoints lack

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        self._forget()
        super().__init__(params, defaults)
        if defaults.get("fused"):
            if defaults["differentiable"]:
                raise RuntimeError("`fused` does not support `differentiable`")
            if defaults["foreach"]:
                raise RuntimeError("`fused` and `foreach` cannot be `True` together.")

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._forget()
        for group in self.param_groups:
            for name, default in self.older.items():
                group.setdefault(name, default)
            for p in group["params"]:
                kept = self.state.get(p) or {}
                for name in self.counters:
                    if name in kept and not isinstance(kept[name], Tensor):  # as old checkpoints have it
                        kept[name] = counter(kept[name], p, group)

    def _forget(self) -> None:
        self._scratch: dict[Tensor, tuple] = {}  # parameter -> (its array, temporaries of its layout)
        self._temporaries: dict[tuple, tuple] = {}  # layout -> temporaries; parameters take turns, so they can share
        self._constants: dict[int, tuple] = {}  # group -> (its settings, {dtype: the settings as that dtype})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Moves the parameters that have a gradient by one step.

        Args:
            closure: computes the loss anew, with its gradients, and returns it.

        Returns:
            What ``closure`` returned, or ``None``.
        """
        if (
            self._optimizer_step_pre_hooks or self._optimizer_step_post_hooks
            or optimizer._global_pre_hooks or optimizer._global_post_hooks
        ):  # fmt: skip
            return run_hooked(Elementwise._step, (self,) if closure is None else (self, closure), {})
        return self._step(closure)

    step.runs_hooks = True  # type: ignore[attr-defined]

    def _step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._opt_called = True
        for i, group in enumerate(self.param_groups):
            self._update(i, group)
        return loss

    # --- what a subclass says ---

    def _begin(self, state: dict[str, Any], p: Tensor, group: dict[str, Any]) -> None:
        """Puts into ``state``, in PyTorch's order, what is kept of a parameter that is moved for the first time."""
        raise NotImplementedError

    def _names(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        """Which of the state's tensors :attr:`_move` gets; ``None`` for one that these settings do without."""
        raise NotImplementedError

    def _time(self, state: dict[str, Any], group: dict[str, Any], fresh: bool) -> Any:
        """Counts the step, and returns what this step's numbers depend on (``None``: on nothing)."""
        return count(state)

    def _fixed(self, group: dict[str, Any], read: Callable[[Any], Any]) -> tuple:
        """The numbers that follow from a group's settings, which are read through ``read``."""
        raise NotImplementedError

    def _moving(self, time: Any, group: dict[str, Any], read: Callable[[Any], Any]) -> tuple:
        """The numbers that also depend on the time; they precede the fixed ones."""
        return ()

    # --- the loop ---

    def _update(self, i: int, group: dict[str, Any]) -> None:
        """Moves the parameters of group number ``i``."""
        if group.get("differentiable") or group.get("capturable") or group.get("fused"):
            self._check_flags(group)
            if group["differentiable"]:
                return self._update_recorded(group)
        names, fixed = self._names(group), self._fixed(group, number)
        kept = self._constants_of(i, fixed)
        cache = kept if self.timeless else {}
        move, time, fresh = self._move, None, False
        row, few, takes = self._kernel(group["params"])
        moves: list = []  # what is left to that kernel
        for p in group["params"]:
            grad = p._grad
            if grad is None:
                continue
            x = p._array
            arrays = [grad._array]
            if names:
                state = self.state[p]
                fresh = state.get(names[0]) is None
                if fresh:
                    self._begin(state, p, group)
                time = self._time(state, group, fresh)
                for name in names:
                    arrays.append(state[name]._array if name else None)
            if x.size >= few and takes(x, arrays) and row.available():
                numbers = cache.get((time, "numbers"))
                if numbers is None:
                    numbers = cache[time, "numbers"] = self._moving(time, group, number) + fixed
                moves.append((x, arrays, numbers))
                if p._memory is not None:
                    p._memory.version += 1
                continue
            key = time, x.dtype, x.__class__
            constants = cache.get(key)
            if constants is None:
                settled = kept.get(key[1:])
                if settled is None:
                    settled = kept[key[1:]] = scalars(x, fixed)
                constants = cache[key] = scalars(x, self._moving(time, group, number)) + settled
            self._advance(move, p, arrays, constants)
        if moves:
            row.ready(moves)
        return None

    def _kernel(self, params: list[Tensor]) -> tuple[Any, int, Callable]:
        """The kernel that moves many parameters at once: its row, from how many elements on, and what it takes."""
        there = params[0]._array.__class__ if params else np.ndarray
        if there is np.ndarray:
            row: Any = LARGE.get(self.compiled)
            return row, sys.maxsize if row is None or SETTINGS.deterministic else row.elements, _plain
        row = own_kernel(self.compiled, STORAGES[there])
        return (None, sys.maxsize, _plain) if row is None else (row, row.elements, row.takes)

    def _constants_of(self, i: int, settings: tuple) -> dict:
        """An empty, or already filled, dictionary of group ``i``'s settings by dtype; a new one when they changed."""
        kept = self._constants.get(i)
        if kept is None or kept[0] != settings:
            kept = self._constants[i] = (settings, {})
        return kept[1]

    def _advance(self, update: Callable, p: Tensor, arrays: list, constants: tuple) -> None:
        """Runs ``update(xp, x, arrays, temporaries, constants)`` on a parameter's array x.

        ``arrays`` are the gradient's and the state's arrays, or ``None``; all but the gradient's may be written.
        """
        x = p._array
        kept = self._scratch.get(p)
        if kept is not None and kept[0] is x:
            update(np, x, arrays, kept[1], constants)
        elif x.__class__ is np.ndarray and x.size <= BLOCK and _native(x.dtype, self.real):
            layout = x.shape, x.strides, x.dtype
            temporaries = self._temporaries.get(layout)
            if temporaries is None:
                temporaries = self._temporaries[layout] = tuple(np.empty_like(x) for _ in range(self.scratch))
            self._scratch[p] = x, temporaries
            update(np, x, arrays, temporaries, constants)
        else:
            large = p._storage.guard(_advance_large)
            try:
                large(update, x, arrays, constants, self.scratch, self.real)
            except TypeError:
                check_one_device(f"{type(self).__name__}.step", [a for a in (x, *arrays) if a is not None])
                raise
        memory = p._memory
        if memory is not None:  # otherwise nobody has asked for its version yet
            memory.version += 1

    # --- rare ---

    def _check_flags(self, group: dict[str, Any]) -> None:
        """Raises what PyTorch raises where a group's flags cannot be had."""
        for p in group["params"]:
            if p._grad is None:
                continue
            if group.get("fused") and not p.is_floating_point():
                raise RuntimeError(
                    "`fused=True` requires all the params to be floating point Tensors of supported devices: "
                    f"{FUSED_DEVICES} but {p.dtype} and {p.device.type}"
                )
            if group.get("capturable"):
                state = self.state[p]
                if not state:
                    self._begin(state, p, group)
                places = {p.device.type, *(state[name].device.type for name in self.counters)}
                if len(places) > 1 or not places <= set(self.capturable_devices):
                    raise AssertionError(
                        f"If capturable=True, {self.counted} must be on supported devices: {self.capturable_devices}."
                    )

    def _update_recorded(self, group: dict[str, Any]) -> None:
        """Moves a group's parameters with tensor ops, which autograd records."""
        from tensorgrad.optim.recorded import advance

        if group["foreach"] and not self.recorded_foreach:
            raise AssertionError("_foreach ops don't support autograd")
        names, time, fresh = self._names(group), None, False
        with torch.set_grad_enabled(self.defaults["differentiable"]):
            for p in group["params"]:
                if p.grad is None:
                    continue
                tensors = [p.grad]
                if names:
                    state = self.state[p]
                    fresh = state.get(names[0]) is None
                    if fresh:
                        self._begin(state, p, group)
                    time = self._time(state, group, fresh)
                    tensors += [state[name] if name else None for name in names]
                constants = self._moving(time, group, unread) + self._fixed(group, unread)
                advance(self._move, p, tensors, self.scratch, constants, self.real)


def count(state: dict[str, Any]) -> float:
    """Adds one to the state's step count and returns it. The count is a tensor so that PyTorch can load it."""
    array = state["step"]._array
    if array.__class__ is not np.ndarray:
        return _count_there(state["step"])
    step = array.item() + 1
    array[()] = step
    return step


_COUNTS: weakref.WeakKeyDictionary[Storage, tuple[int | None, float]] = weakref.WeakKeyDictionary()


def _count_there(tensor: Tensor) -> float:
    """The same for a count on another device, which is read only if somebody else has written to it: to read is to wait
    until the device has done all its work."""
    storage = tensor._storage
    version, step = _COUNTS.get(storage, (None, 0.0))
    step = (tensor.item() if version is None or version != storage.version else step) + 1
    storage.write(tensor._array, step)
    storage.bump()
    _COUNTS[storage] = storage.version, step
    return step


def single(value: float) -> Any:
    """A number rounded to the dtype that PyTorch keeps counts in."""
    return (np.float64 if torch.get_default_dtype() == torch.float64 else np.float32)(value)


def counter(value: float, p: Tensor, group: dict[str, Any], here: bool = False) -> Tensor:
    """A single number of a parameter's state, of the dtype and on the device that PyTorch gives it.

    Args:
        here: is it on the parameter's device in any case?
    """
    fused = group.get("fused")
    dtype = torch.float64 if torch.get_default_dtype() == torch.float64 and not fused else torch.float32
    device = p.device if here or fused or group.get("capturable") else "cpu"
    return torch.full((), float(value), dtype=dtype, device=device)


def scalars(array: Any, values: tuple) -> tuple:
    """Numbers as constants for an update of ``array``; ``None`` and booleans stay.

    For NumPy they become arrays without dimensions, which halves the time of an operation on a small array: a Python
    number is converted anew by each.
    """
    if array.__class__ is not np.ndarray:
        return values
    dtype = array.real.dtype
    if dtype.itemsize == 2:  # computed in float32
        dtype = np.dtype("float32")
    return tuple(v if v is None or v.__class__ is bool else np.array(v, dtype) for v in values)


def number(value: Any) -> Any:
    """A setting, which may be a one-element tensor, as a number: of the tensor's dtype, as PyTorch reckons with it."""
    return value._array.dtype.type(value.item()) if isinstance(value, Tensor) else value


def unread(value: Any) -> Any:
    """A setting as it is: a tensor stays one, so that it can get a gradient."""
    return value


def descent(xp: Any, x: Any, g: Any, decay: Any, maximize: bool, s: Any, t: Any) -> Any:
    """The gradient to go down along: reversed to maximize, and with the weight decay (unless it is ``None``) added.

    ``g`` itself, or ``t``; ``s`` is overwritten.
    """
    if maximize:
        g = xp.negative(g, t)
    if decay is not None:
        g = xp.add(g, xp.multiply(x, decay, s), t)
    return g


def check(name: str, value: Any, fine: bool) -> None:
    """Raises ValueError, in PyTorch's words, unless ``fine``."""
    if not fine:
        raise ValueError(f"Invalid {name}: {value}")


def check_lr(lr: Any, nan: bool = False) -> None:
    """Raises ValueError for a learning rate that is negative (or, unless ``nan``, not a number), or several numbers."""
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    check("learning rate", lr, not lr < 0.0 if nan else bool(lr >= 0.0))


def check_betas(betas: Any) -> None:
    """Raises ValueError for a decay rate outside [0, 1)."""
    for i, beta in enumerate(betas[:2]):
        check(f"beta parameter at index {i}", beta, bool(0.0 <= beta < 1.0))


def _plain(x: Any, arrays: list) -> bool:
    """Whether a compiled kernel takes a parameter's array along with the gradient's and the state's."""
    if x.__class__ is not np.ndarray:
        return False
    for a in (x, *arrays):
        if a is not None and not (a.dtype is F32 and a.flags.carray and a.shape == x.shape):
            return False
    return True


def _native(dtype: np.dtype, real: bool) -> bool:
    """Whether an update can run on arrays of this dtype as they are."""
    return (dtype.kind == "f" and dtype.itemsize > 2) or (dtype.kind == "c" and not real)


def _advance_large(update: Callable, x: Any, arrays: list, constants: tuple, scratch: int, real: bool) -> None:
    storage = STORAGES[x.__class__]
    xp = storage.xp
    if xp is None:
        if storage.device_type == "meta":
            return
        raise NotImplementedError(
            f"optimizers need an array module, which device '{storage.device_type}' does not have"
        )
    if x.dtype.kind == "c" and real:
        part = "f4" if x.dtype.itemsize == 8 else "f8"
        x, *arrays = (None if a is None else a[..., None].view(part) for a in (x, *arrays))
    elif not _native(x.dtype, real):
        wide: list[Any] = [None if a is None else a.astype("float32") for a in (x, *arrays)]
        _advance_large(update, wide[0], wide[1:], constants, scratch, real)
        grad = 1
        for i, (narrow, result) in enumerate(zip((x, *arrays), wide, strict=True)):
            if narrow is not None and i != grad:
                narrow[...] = result.astype(narrow.dtype)
        return

    if xp is np and x.size > BLOCK and all(a is None or a.flags.c_contiguous for a in (x, *arrays)):
        flat = [None if a is None else a.reshape(-1) for a in (x, *arrays)]

        def advance(first: int, last: int) -> None:
            temporaries = [np.empty(BLOCK, x.dtype) for _ in range(scratch)]
            for start in range(first * BLOCK, min(last * BLOCK, x.size), BLOCK):
                block: Any
                block, *others = (None if a is None else a[start : start + BLOCK] for a in flat)
                update(np, block, others, [t[: block.size] for t in temporaries], constants)

        if LARGE:  # threads are wanted: NumPy's loops hold no lock
            thread_pool.run(advance, -(-x.size // BLOCK), (), x.size)
        else:
            advance(0, -(-x.size // BLOCK))
    else:
        update(xp, x, arrays, [xp.empty_like(x) for _ in range(scratch)], constants)
