"""Steps with `capturable=True`: nothing that changes from step to step is on the host, so CUDA graphs can repeat them.

The number of steps is in the GPU's memory, where each step counts itself. Adam and AdamW have a kernel that reads it
there. For the others, the coefficients that depend on it are computed on the GPU, by the formulas that compute them on
the host: they only add, multiply and raise to powers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tensorgrad.errors import warn
from tensorgrad.optim.settings import Settings, as_scalar
from tensorgrad.optim.state import begin
from tensorgrad.rows.kernel_tables import device_kernel
from tensorgrad.storage.cuda import capture
from tensorgrad.storage.sparse import SparseArray
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.tensor import Tensor


def check_capture(optimizer: Any) -> None:
    """Checks a step: one in a capture must be capturable, and PyTorch warns of the reverse.

    Raises: RuntimeError if it is not; NotImplementedError if the optimizer cannot be captured.
    """
    if "capturable" not in optimizer.defaults:
        return
    capturable = all(group["capturable"] for group in optimizer.param_groups)
    capturing = capture.current() is not None
    if capturing and not capturable:
        raise RuntimeError(
            f"Attempting CUDA graph capture of step() for an instance of {type(optimizer).__name__} but param_groups' "
            "capturable is False."
        )
    if capturing and optimizer._counted_on_device is None:
        raise NotImplementedError(
            f"{type(optimizer).__name__}.step cannot be captured in a CUDA graph: the host decides by the number of "
            "steps what to compute"
        )
    if capturable and not capturing and not getattr(optimizer, "_warned_capturable_if_run_uncaptured", False):
        warn(
            "This instance was constructed with capturable=True or some of all the param_groups came with "
            "capturable=True, but step() is running without CUDA graph capture. If you never intend to graph-capture "
            "this instance, capturable=True can impair performance, and you should set capturable=False."
        )
        optimizer._warned_capturable_if_run_uncaptured = True


def step_group(optimizer: Any, group: dict[str, Any], settings: Settings, move: Callable) -> None:
    """Moves a group's parameters. `move` runs an update on the arrays of one.

    Raises: NotImplementedError if GradScaler is to decide whether to skip the step, unless the kernel does that.
    """
    names, starts = settings.names, settings.starts
    skip = optimizer._skip()
    there = {**group, **{name: _on_device(group[name]) for name in settings._keys}}
    moves = []
    for p in group["params"]:
        grad = p._grad
        if grad is None:
            continue
        x = p._array
        if isinstance(grad._array, SparseArray):
            optimizer._step_sparse(p, grad, group)
            continue
        state = optimizer.state[p]
        if state.get(names[0]) is None:
            begin(state, p, starts)
        arrays = [grad._array, *(state[name]._array if name else None for name in names)]
        row = device_kernel(optimizer._kernel_name, STORAGES[x.__class__])
        step = state["step"]._array
        plain = all(not isinstance(v, x.__class__) for v in there["betas"]) if "betas" in there else True
        if row is not None and row.counted and plain and step.dtype == np.float32 and row.takes(x, arrays):
            moves.append((x, arrays, step))
        else:
            if skip is not None:
                optimizer._cannot_skip()
            p._storage.guard(_move)(optimizer, x, arrays, there, state, move)
        for tensor in (p, state["step"]):
            tensor._storage.bump()
    if moves:
        row.ready_on_device(moves, there, skip)


def _move(optimizer: Any, x: Any, arrays: list, group: dict[str, Any], state: dict[str, Any], move: Callable) -> None:
    """Runs the update with coefficients that are computed on the device."""
    step = state["step"]._array
    step += 1
    t = optimizer._counted_on_device(step.astype(np.float64), state, group)
    n = optimizer._coefficients_at(group, t)
    move(optimizer._update, x, arrays, n, optimizer._temporaries, optimizer._complex_as_pairs)


def _on_device(value: Any) -> Any:
    """Returns a setting that is a tensor as its array, if that is on a GPU, else as a number."""
    if value.__class__ is tuple:
        return tuple(map(_on_device, value))
    if not isinstance(value, Tensor):
        return value
    array = value._array
    if array.__class__ is np.ndarray:
        return as_scalar(value)
    return array.reshape(()).astype(np.float32, copy=False)
