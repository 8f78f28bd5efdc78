"""Loss scaling: small gradients survive float16 if the loss is multiplied by a large number, which is divided out again
before the optimizer's step (Micikevicius et al., Mixed Precision Training, 2018)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from typing import Any

from tensorgrad.tensor import Tensor


class GradScaler:
    """Scales losses, skips the steps whose gradients overflowed, and adapts the scale.

    Args:
        device: "cuda" or "cpu". For "cuda" without a GPU the scaler is disabled, with a warning, as in PyTorch.
        init_scale: the first scale.
        growth_factor, growth_interval: the scale grows by the factor after so many steps without overflow.
        backoff_factor: and shrinks by this one after an overflow.
        enabled: if False every method passes its argument through.

    >>> import tensorgrad as torch
    >>> w = torch.nn.Parameter(torch.ones(2))
    >>> optimizer = torch.optim.SGD([w], lr=0.5)
    >>> scaler = torch.amp.GradScaler("cpu")
    >>> scaler.scale(w.sum()).backward()
    >>> _ = scaler.step(optimizer)
    >>> scaler.update()
    >>> w.detach()
    tensor([0.5000, 0.5000])
    """

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
        self._scale, self._growth_tracker = float(init_scale), 0
        self._growth_factor, self._backoff_factor, self._growth_interval = (
            growth_factor, backoff_factor, growth_interval,
        )  # fmt: skip
        self._seen: dict[int, dict[str, Any]] = {}  # id of an optimizer -> what was done since the last update

    def scale(self, outputs: Any) -> Any:
        """A loss (or nested losses) times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self._scale
        if isinstance(outputs, Iterable):
            scaled = map(self.scale, outputs)
            return type(outputs)(scaled) if isinstance(outputs, list | tuple) else scaled
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def _of(self, optimizer) -> dict[str, Any]:
        return self._seen.setdefault(id(optimizer), {"state": "ready", "found_inf": False})

    def unscale_(self, optimizer) -> None:
        """Divides the gradients by the scale, in place: before clipping them, for example.

        Raises: RuntimeError if that was done already since the last `update`, or after `step`.
        """
        if not self._enabled:
            return
        seen = self._of(optimizer)
        if seen["state"] == "unscaled":
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if seen["state"] == "stepped":
            raise RuntimeError("unscale_() is being called after step().")
        inverse, finite, any_grad = 1.0 / self._scale, True, False
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    any_grad = True
                    grad = parameter.grad.detach()
                    grad.mul_(inverse)
                    finite = finite and bool(grad.isfinite().all())
        if not any_grad:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        seen.update(state="unscaled", found_inf=not finite)

    def step(self, optimizer, *args: Any, **kwargs: Any) -> Any:
        """The optimizer's step, unless a gradient is infinite or nan. Returns what the step returns.

        Raises: RuntimeError for a second step without `update` between, or for a closure.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        seen = self._of(optimizer)
        if seen["state"] == "stepped":
            raise RuntimeError("step() has already been called since the last update().")
        if seen["state"] == "ready":
            self.unscale_(optimizer)
        result = None if seen["found_inf"] else optimizer.step(*args, **kwargs)
        seen["state"] = "stepped"
        return result

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Adapts the scale after a step, or sets it.

        Raises: AssertionError if there was no step and no `unscale_` since the last time.
        """
        if not self._enabled:
            return
        if new_scale is not None:
            self._scale = float(new_scale)
        else:
            done = [seen for seen in self._seen.values() if seen["state"] != "ready"]
            if not done:
                raise AssertionError("No inf checks were recorded prior to update.")
            if any(seen["found_inf"] for seen in done):
                self._scale, self._growth_tracker = self._scale * self._backoff_factor, 0
            else:
                self._growth_tracker += 1
                if self._growth_tracker == self._growth_interval:
                    grown = self._scale * self._growth_factor
                    self._scale = grown if math.isfinite(grown) else self._scale
                    self._growth_tracker = 0
        self._seen.clear()

    def get_scale(self) -> float:
        """The scale; 1.0 if disabled."""
        return self._scale if self._enabled else 1.0

    def is_enabled(self) -> bool:
        """Whether the scaler does anything."""
        return self._enabled

    def get_growth_factor(self) -> float:
        """By what the scale grows."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Sets by what the scale grows."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """By what the scale shrinks."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Sets by what the scale shrinks."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """After how many steps without overflow the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Sets after how many steps without overflow the scale grows."""
        self._growth_interval = new_interval

    def state_dict(self) -> dict[str, Any]:
        """The scale and the settings; empty if disabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self._scale, "growth_factor": self._growth_factor, "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval, "_growth_tracker": self._growth_tracker,
        }  # fmt: skip

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continues from a `state_dict`. Raises: RuntimeError for that of a disabled scaler."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler."
            )
        self._scale, self._growth_tracker = float(state_dict["scale"]), int(state_dict["_growth_tracker"])
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
