"""Loss scaling: small gradients survive float16 if the loss is multiplied by a large factor, by which they are divided
again before the optimizer's step.

The scale, the step counter and the overflow flags are tensors on the device of the losses. On a GPU the host only waits
in `step`, which needs to know whether to skip the update, and in methods that return Python scalars.

Source: Micikevicius et al., Mixed Precision Training, 2018.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections import defaultdict
from collections.abc import Iterable
from enum import Enum
from typing import Any

import tensorgrad as torch
from tensorgrad.autograd.modes import no_grad
from tensorgrad.rows.kernel_tables import device_kernel
from tensorgrad.storage.cuda.capture import RUNNING, current
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.tensor import Tensor


class OptState(Enum):
    """The progress of an optimizer since the last `update`."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


def _refresh_per_optimizer_state() -> dict[str, Any]:
    return {"stage": OptState.READY, "found_inf_per_device": {}}


class GradScaler:
    """Scales losses, skips the steps whose gradients overflowed, and adapts the scale.

    Args:
        device: "cuda" or "cpu". For "cuda" without a GPU the scaler is disabled, with a warning, as in PyTorch.
        init_scale: The initial scale.
        growth_factor, growth_interval: The scale grows by this factor after this many steps without overflow.
        backoff_factor: The scale is multiplied by this after an overflow.
        enabled: If False, every method passes its argument through.

    >>> w = torch.nn.Parameter(torch.ones(2))
    >>> optimizer = torch.optim.SGD([w], lr=0.5)
    >>> scaler = torch.amp.GradScaler("cpu")
    >>> scaler.scale(w.sum()).backward()
    >>> _ = scaler.step(optimizer)
    >>> scaler.update()
    >>> w.detach()
    tensor([0.5000, 0.5000])
    """

    _unscales_halves = False  # whether gradients of float16 are accepted

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ):
        if device == "cuda" and enabled:
            from tensorgrad import cuda

            if not cuda.is_available():
                warnings.warn(
                    "torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.", stacklevel=2
                )
                enabled = False
        if enabled and growth_factor <= 1.0:
            raise AssertionError("The growth factor must be > 1.0.")
        if enabled and backoff_factor >= 1.0:
            raise AssertionError("The backoff factor must be < 1.0.")
        self._device, self._enabled = device, enabled
        self._init_scale, self._init_growth_tracker = init_scale, 0
        # Created by the first `scale`, on the device of the loss.
        self._scale: Tensor | None = None
        self._growth_tracker: Tensor | None = None
        self._growth_factor, self._backoff_factor, self._growth_interval = (
            growth_factor, backoff_factor, growth_interval,
        )  # fmt: skip
        # By the id of each optimizer: its progress since the last update.
        self._per_optimizer_states: dict[int, dict[str, Any]] = defaultdict(_refresh_per_optimizer_state)

    # --- the loss ---

    def scale(self, outputs: Any) -> Any:
        """Multiplies a loss (or nested losses) by the scale.

        Raises:
            ValueError: If `outputs` is neither.
        """
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            if self._scale is None:
                self._scale = torch.full((), self._init_scale, dtype=torch.float32, device=outputs.device)
                self._growth_tracker = torch.full(
                    (), self._init_growth_tracker, dtype=torch.int32, device=outputs.device
                )
            return outputs * self._scale.to(device=outputs.device, non_blocking=True)
        if isinstance(outputs, Iterable):
            scaled = map(self.scale, outputs)
            return type(outputs)(scaled) if isinstance(outputs, list | tuple) else scaled
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def _made(self, asked: str) -> tuple[Tensor, Tensor]:
        """The scale and the step counter. Raises: AssertionError before the first `scale`."""
        for name in ("_scale", "_growth_tracker"):
            if getattr(self, name) is None:
                raise AssertionError(
                    f"Attempted {asked} but {name} is None.  This may indicate your script did not use "
                    "scaler.scale(loss or outputs) earlier in the iteration."
                )
        return self._scale, self._growth_tracker  # type: ignore[return-value]

    # --- the gradients ---

    def _of(self, optimizer) -> dict[str, Any]:
        return self._per_optimizer_states[id(optimizer)]

    def unscale_(self, optimizer) -> None:
        """Divides the gradients by the scale in place: for example before clipping them.

        Raises:
            RuntimeError: If that was already done since the last `update`, or after `step`.
            AssertionError: Before the first `scale`.
            ValueError: For float16 gradients.
        """
        if not self._enabled:
            return
        scale, _ = self._made("unscale_")
        seen = self._of(optimizer)
        if seen["stage"] is OptState.UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if seen["stage"] is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        seen["found_inf_per_device"] = self._unscale(
            optimizer, scale.double().reciprocal().float(), self._unscales_halves
        )
        seen["stage"] = OptState.UNSCALED

    @no_grad()
    def _unscale(self, optimizer, inverse: Tensor, halves: bool) -> dict[Any, Tensor]:
        """Multiplies the gradients; returns for each device a float32 flag: whether any was infinite or nan."""
        grads: dict[Any, list[Tensor]] = {}
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if not isinstance(parameter, Tensor):
                    raise AssertionError(f"expected param to be torch.Tensor, got {type(parameter).__name__}")
                if parameter.grad is not None:
                    if parameter.grad.dtype is torch.float16 and not halves:
                        raise ValueError("Attempting to unscale FP16 gradients.")
                    grads.setdefault(parameter.grad.device, []).append(parameter.grad)
        return {device: _multiply(found, inverse.to(device, non_blocking=True)) for device, found in grads.items()}

    def step(self, optimizer, *args: Any, **kwargs: Any) -> Any:
        """Runs the optimizer's step, unless a gradient is infinite or nan. Returns the result of the step.

        Raises:
            RuntimeError: For a second step without `update` in between, or for a closure.
            AssertionError: Before the first `scale`, and if no parameter has a gradient.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        scale, _ = self._made("step")
        seen = self._of(optimizer)
        if seen["stage"] is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            return self._step_that_scales(optimizer, scale, seen, args, kwargs)
        if seen["stage"] is OptState.READY:
            self.unscale_(optimizer)
        if not seen["found_inf_per_device"]:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        if RUNNING and current() is not None:
            result = self._step_in_graph(optimizer, seen["found_inf_per_device"], args, kwargs)
            seen["stage"] = OptState.STEPPED
            return result
        result = (
            None
            if sum(found.item() for found in seen["found_inf_per_device"].values())
            else optimizer.step(*args, **kwargs)
        )
        seen["stage"] = OptState.STEPPED
        return result

    def _step_in_graph(self, optimizer, found: dict[Any, Tensor], args: tuple, kwargs: dict) -> Any:
        """Runs a step that is recorded in a CUDA graph: at each replay, the GPU decides whether to skip it.

        Raises: RuntimeError if the optimizer cannot do that.
        """
        if len(found) != 1 or not getattr(optimizer, "_skips", False):
            raise RuntimeError(
                "GradScaler.step waits for the GPU, so it cannot be captured in a CUDA graph, except for SGD, Adam and "
                f"AdamW with parameters on one GPU; got {type(optimizer).__name__}"
            )
        (optimizer.found_inf,) = found.values()
        try:
            return optimizer.step(*args, **kwargs)
        finally:
            del optimizer.found_inf

    def _step_that_scales(self, optimizer, scale: Tensor, seen: dict[str, Any], args: tuple, kwargs: dict) -> Any:
        """Runs the step of an external optimizer that unscales by itself.

        It receives the scaler, if its `step` has a parameter for it, or else the scale and the overflow flags.
        """
        takes_scaler = "grad_scaler" in inspect.signature(optimizer.step).parameters
        if takes_scaler:
            warnings.warn(
                "GradScaler is going to stop passing itself as a keyword argument to the passed optimizer. In the "
                "near future GradScaler registers `grad_scale: Tensor` and `found_inf: Tensor` to the passed "
                "optimizer and let the optimizer use them directly.",
                FutureWarning,
                stacklevel=3,
            )
            result = optimizer.step(*args, **kwargs, grad_scaler=self)
        else:
            before = getattr(optimizer, "grad_scale", None)
            if seen["stage"] is OptState.READY:
                one = torch.full((), 1.0, dtype=torch.float32, device=scale.device)
                seen["found_inf_per_device"] = self._unscale(optimizer, one, halves=True)
                before = scale * (1 if before is None else before)
            optimizer.grad_scale = before
            optimizer.found_inf = sum(
                found.to(scale.device, non_blocking=True) for found in seen["found_inf_per_device"].values()
            )
            result = optimizer.step(*args, **kwargs)
            del optimizer.grad_scale, optimizer.found_inf
        seen["stage"] = OptState.STEPPED
        return result

    # --- the scale ---

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Adapts the scale after a step, or sets it.

        Raises:
            AssertionError: Before the first `scale`; if there was no step and no `unscale_` since the last call; for a
                new scale that is neither a float nor a tensor of one element on the scaler's device.
        """
        if not self._enabled:
            return
        scale, steps = self._made("update")
        if isinstance(new_scale, float):
            scale.fill_(new_scale)
        elif new_scale is not None:
            fits = isinstance(new_scale, Tensor) and new_scale.device.type == self._device
            if not fits or new_scale.numel() != 1 or new_scale.requires_grad:
                raise AssertionError(
                    "new_scale should be a float or a 1-element torch.cuda.FloatTensor or torch.FloatTensor with "
                    "requires_grad=False."
                )
            scale.copy_(new_scale)
        else:
            found = [
                each for seen in self._per_optimizer_states.values() for each in seen["found_inf_per_device"].values()
            ]
            if not found:
                raise AssertionError("No inf checks were recorded prior to update.")
            combined = found[0].to(scale.device, non_blocking=True)
            for each in found[1:]:
                combined = combined + each.to(scale.device, non_blocking=True)
            self._adapt(scale, steps, combined)
        self._per_optimizer_states = defaultdict(_refresh_per_optimizer_state)

    @no_grad()
    def _adapt(self, scale: Tensor, steps: Tensor, found: Tensor) -> None:
        """Shrinks the scale after an overflow; grows it, while finite, after enough steps without one."""
        settings = self._growth_factor, self._backoff_factor, self._growth_interval
        kernel = device_kernel("update_loss_scale", STORAGES[scale._array.__class__])
        if kernel is not None:
            kernel(scale._array, steps._array, found._array, *settings)
            scale._storage.bump()
            steps._storage.bump()
            return
        growth, backoff, interval = settings
        if found.item():
            scale.mul_(backoff)
            steps.zero_()
        elif steps.add_(1).item() == interval:
            grown = scale * growth
            if math.isfinite(grown.item()):
                scale.copy_(grown)
            steps.zero_()

    def get_scale(self) -> float:
        """Returns the scale; 1.0 if disabled."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else self._scale.item()

    def _get_growth_tracker(self) -> int:
        if not self._enabled:
            return 0
        return self._init_growth_tracker if self._growth_tracker is None else int(self._growth_tracker)

    def is_enabled(self) -> bool:
        """Returns whether the scaler is enabled."""
        return self._enabled

    def get_growth_factor(self) -> float:
        """Returns the factor by which the scale grows."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Sets the factor by which the scale grows."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """Returns the factor by which the scale shrinks."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Sets the factor by which the scale shrinks."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """Returns the number of steps without overflow after which the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Sets the number of steps without overflow after which the scale grows."""
        self._growth_interval = new_interval

    # --- saving ---

    def state_dict(self) -> dict[str, Any]:
        """Returns the scale and the settings; empty if disabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(), "growth_factor": self._growth_factor, "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval, "_growth_tracker": self._get_growth_tracker(),
        }  # fmt: skip

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores a `state_dict`.

        Raises:
            RuntimeError: If it is from a disabled scaler.
        """
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler."
            )
        self._init_scale, self._init_growth_tracker = state_dict["scale"], state_dict["_growth_tracker"]
        if self._scale is not None:
            self._scale.fill_(self._init_scale)
        if self._growth_tracker is not None:
            self._growth_tracker.fill_(self._init_growth_tracker)
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]

    def __getstate__(self) -> dict[str, Any]:
        if self._per_optimizer_states:
            raise AssertionError(
                "A GradScaler instance may only be pickled at the beginning of an iteration, or at the end after "
                "scaler.update()."
            )
        started = {"_init_scale": self.get_scale(), "_init_growth_tracker": self._get_growth_tracker()}
        return {**self.__dict__, **(started if self._enabled else {}), "_scale": None, "_growth_tracker": None}


def _multiply(grads: list[Tensor], inverse: Tensor) -> Tensor:
    """Multiplies the gradients of one device in place; returns 1.0 if one was infinite or nan, else 0.0."""
    found = torch.full((), 0.0, dtype=torch.float32, device=inverse.device)
    kernel: Any = device_kernel("unscale_gradients", STORAGES[inverse._array.__class__])
    done = NotImplemented
    if kernel is not None:
        done = kernel([grad._array for grad in grads], inverse._array, found._array)
    for grad in grads:
        if done is not NotImplemented:
            grad._storage.bump()
        else:
            found = torch.maximum(found, grad.isfinite().all().logical_not().float())
            grad.mul_(inverse.item() if inverse.device.type == "cpu" else inverse)
    return found
