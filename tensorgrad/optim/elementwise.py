"""The loop of all optimizers whose update treats every element by itself.

Such an update is a plain function over arrays, written once (in its optimizer's file) with the array module's in-place
operations. This file decides how it is run: directly for small parameters; block by block for large ones, so that its
many passes stay in the cache; on float32 copies for 16-bit parameters.

This is one of the few places outside the ops that touch a tensor's array: an update is not recorded, and writing it
with tensor ops would cost ten times as much for a small model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tensorgrad as torch
from tensorgrad.optim import optimizer
from tensorgrad.optim.optimizer import Optimizer, run_hooked
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.tensor import Tensor

# Elements per block. Measured on 4 M float32 elements, one thread, Adam: 16 K take 5.5 ms, 64 to 256 K 4.9-5.2 ms, all
# at once 6.5 ms (PyTorch 5.9 ms); and a layer of 784 × 128 is fastest (14 µs for SGD, PyTorch 18) as one block.
BLOCK = 131_072


class Elementwise(Optimizer):
    """An optimizer that moves each parameter by ``self._update(group)``, using :meth:`_advance`."""

    scratch = 1  # how many temporary arrays the update needs
    real = False  # does the update treat real and imaginary parts of complex parameters as separate numbers?

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        self._forget()
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._forget()

    def _forget(self) -> None:
        self._scratch: dict[Tensor, tuple] = {}  # parameter -> (its array, temporaries of its layout)
        self._temporaries: dict[tuple, tuple] = {}  # layout -> temporaries; parameters take turns, so they can share
        self._constants: dict[int, tuple] = {}  # group -> (its settings, {dtype: the settings as that dtype})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters with settings of their own. Raises: see :class:`Optimizer`; and NotImplementedError."""
        for flag in ("differentiable", "capturable"):
            if isinstance(param_group, dict) and param_group.get(flag, self.defaults.get(flag)):
                raise NotImplementedError(
                    f"{type(self).__name__}: {flag}=True is not supported: the update works on arrays, outside autograd"
                )
        super().add_param_group(param_group)

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

    def _update(self, i: int, group: dict[str, Any]) -> None:
        """Moves the parameters of group number ``i``."""
        raise NotImplementedError

    def _constants_of(self, i: int, settings: tuple) -> dict:
        """An empty, or already filled, dictionary of group ``i``'s settings by dtype; a new one when they changed."""
        kept = self._constants.get(i)
        if kept is None or kept[0] != settings:
            kept = self._constants[i] = (settings, {})
        return kept[1]

    def _advance(self, update: Callable, p: Tensor, arrays: tuple, constants: tuple) -> None:
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
            _advance_large(update, x, arrays, constants, self.scratch, self.real)
        memory = p._memory
        if memory is not None:  # otherwise nobody has asked for its version yet
            memory.version += 1


def scalars(array: Any, *values: float) -> tuple:
    """Numbers as constants for an update of ``array``.

    For NumPy they become arrays without dimensions, which halves the time of an operation on a small array: a Python
    number is converted anew by each.
    """
    if array.__class__ is not np.ndarray:
        return values
    dtype = array.real.dtype
    if dtype.itemsize == 2:  # computed in float32
        dtype = np.dtype("float32")
    return tuple(np.array(value, dtype) for value in values)


def number(value: Any) -> float:
    """A setting, which may be a one-element tensor, as a number."""
    return value.item() if isinstance(value, Tensor) else value


def check(name: str, value: Any, fine: bool) -> None:
    """Raises ValueError, in PyTorch's words, unless ``fine``."""
    if not fine:
        raise ValueError(f"Invalid {name}: {value}")


def check_lr(lr: Any, foreach: bool | None = False) -> None:
    """Raises ValueError for a learning rate that is negative, or a tensor that is no number."""
    if isinstance(lr, Tensor):
        if foreach:
            raise ValueError("lr as a Tensor is not supported for capturable=False and foreach=True")
        if lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
    check("learning rate", lr, lr >= 0.0)


def check_fused(fused: bool | None, foreach: bool | None) -> None:
    """Both are accepted and ignored (there is one implementation), but not together."""
    if fused and foreach:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")


def _native(dtype: np.dtype, real: bool) -> bool:
    """Whether an update can run on arrays of this dtype as they are."""
    return (dtype.kind == "f" and dtype.itemsize > 2) or (dtype.kind == "c" and not real)


def _advance_large(update: Callable, x: Any, arrays: tuple, constants: tuple, scratch: int, real: bool) -> None:
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
        x, *parts = (None if a is None else a[..., None].view(part) for a in (x, *arrays))
        arrays = tuple(parts)
    elif not _native(x.dtype, real):
        wide: list[Any] = [None if a is None else a.astype("float32") for a in (x, *arrays)]
        _advance_large(update, wide[0], tuple(wide[1:]), constants, scratch, real)
        grad = 1
        for i, (narrow, result) in enumerate(zip((x, *arrays), wide, strict=True)):
            if narrow is not None and i != grad:
                narrow[...] = result.astype(narrow.dtype)
        return

    if xp is np and x.size > BLOCK and all(a is None or a.flags.c_contiguous for a in (x, *arrays)):
        flat = [None if a is None else a.reshape(-1) for a in (x, *arrays)]
        temporaries = [np.empty(BLOCK, x.dtype) for _ in range(scratch)]
        for start in range(0, x.size, BLOCK):
            block: Any
            block, *others = (None if a is None else a[start : start + BLOCK] for a in flat)
            update(np, block, others, [t[: block.size] for t in temporaries], constants)
    else:
        update(xp, x, arrays, [xp.empty_like(x) for _ in range(scratch)], constants)
