"""PyTorch's flags (fused, foreach, capturable, differentiable), and the settings missing from old checkpoints.

There is only one implementation here, so the first three have no effect, but invalid values raise PyTorch's errors.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tensorgrad.optim.state import begin, state_scalar
from tensorgrad.tensor import Tensor

# The devices on which PyTorch supports these optimizers, as listed in its error messages.
CAPTURABLE_DEVICES = ["cuda", "xpu", "hpu", "privateuseone", "xla"]
FUSED_DEVICES = ["mps", "cuda", "xpu", "hpu", "cpu", "mtia", "privateuseone"]


class Flags(NamedTuple):
    """The properties of one optimizer.

    Attributes:
        missing: the settings missing from old checkpoints, with their values.
        state_scalars: the entries of a parameter's state that are scalars.
        capturable_words: the same entries in the words of PyTorch's error message.
        capturable_devices: the devices on which it can be capturable.
        differentiable_foreach: whether both flags can be set.
        foreach_tensor_lr: whether the learning rate can be a tensor with foreach set and capturable not set.
        step_may_require_grad: whether the step count can require a gradient with differentiable set.
    """

    missing: dict[str, Any]
    state_scalars: tuple[str, ...] = ("step",)
    capturable_words: str = "params and state_steps"
    capturable_devices: list[str] = CAPTURABLE_DEVICES
    differentiable_foreach: bool = False
    foreach_tensor_lr: bool = True
    step_may_require_grad: bool = True


_LATER = {"foreach": None, "maximize": False, "differentiable": False}
_LATER_AND_CAPTURABLE = {**_LATER, "capturable": False}

ADADELTA = Flags(_LATER_AND_CAPTURABLE, capturable_devices=CAPTURABLE_DEVICES[:-1])
ADAGRAD = Flags({**_LATER, "fused": None})
ADAM = Flags(
    {
        "amsgrad": False, "maximize": False, "foreach": None, "capturable": False, "differentiable": False,
        "decoupled_weight_decay": False, "fused": None,
    },
    foreach_tensor_lr=False,
    step_may_require_grad=False,
)  # fmt: skip
ADAMAX = Flags(_LATER_AND_CAPTURABLE)
ASGD = Flags(_LATER_AND_CAPTURABLE, ("step", "eta", "mu"), "params, mus, etas, and state_steps")
NADAM = Flags(
    {
        "maximize": False, "foreach": None, "capturable": False, "differentiable": False,
        "decoupled_weight_decay": False,
    },
    ("step", "mu_product"),
    "params, mu_products and state_steps",
)  # fmt: skip
RADAM = Flags({**_LATER, "decoupled_weight_decay": False, "capturable": False})
RMSPROP = Flags({"momentum": 0, "centered": False, **_LATER_AND_CAPTURABLE})
RPROP = Flags(_LATER_AND_CAPTURABLE)
SGD = Flags(
    {"nesterov": False, "maximize": False, "foreach": None, "differentiable": False, "fused": False},
    state_scalars=(),
    differentiable_foreach=True,
)


def is_up(group: dict[str, Any]) -> bool:
    """Returns whether one of the flags is set."""
    get = group.get
    return bool(get("differentiable") or get("capturable") or get("fused") or get("foreach"))


def check_new(defaults: dict[str, Any]) -> None:
    """Raises RuntimeError if an optimizer is created with incompatible flags."""
    if defaults.get("fused"):
        if defaults["differentiable"]:
            raise RuntimeError("`fused` does not support `differentiable`")
        if defaults["foreach"]:
            raise RuntimeError("`fused` and `foreach` cannot be `True` together.")


def check(optimizer: Any, group: dict[str, Any], starts: dict[str, Any]) -> None:
    """Raises PyTorch's error if a group that is about to make a step has unsupported flags."""
    flags: Flags = optimizer._flags
    for p in group["params"]:
        if p._grad is None:
            continue
        if group.get("fused") and not p.is_floating_point():
            raise RuntimeError(
                "`fused=True` requires all the params to be floating point Tensors of supported devices: "
                f"{FUSED_DEVICES} but {p.dtype} and {p.device.type}"
            )
        if group.get("capturable"):
            state = optimizer.state[p]
            if not state:
                begin(state, p, starts)
            devices = {p.device.type, *(state[name].device.type for name in flags.state_scalars)}
            if len(devices) > 1 or not devices <= set(flags.capturable_devices):
                raise AssertionError(
                    f"If capturable=True, {flags.capturable_words} must be on supported devices: "
                    f"{flags.capturable_devices}."
                )
        if group["differentiable"] and not flags.step_may_require_grad:
            step = optimizer.state[p].get("step")
            if step is not None and step.requires_grad:
                raise RuntimeError("`requires_grad` is not supported for `step` in differentiable mode")
    if group["differentiable"] and group["foreach"] and not flags.differentiable_foreach:
        raise AssertionError("_foreach ops don't support autograd")
    if group["foreach"] and isinstance(group["lr"], Tensor) and not (flags.foreach_tensor_lr or group["capturable"]):
        raise RuntimeError("lr as a Tensor is not supported for capturable=False and foreach=True")


def complete(optimizer: Any) -> None:
    """Adds missing settings and state to an optimizer that was loaded from an old checkpoint."""
    flags: Flags = optimizer._flags
    for group in optimizer.param_groups:
        for name, default in flags.missing.items():
            group.setdefault(name, default)
        for p in group["params"]:
            kept = optimizer.state.get(p) or {}
            for name in flags.state_scalars:
                if name in kept and not isinstance(kept[name], Tensor):
                    kept[name] = state_scalar(kept[name], p, group)
