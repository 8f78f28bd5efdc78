"""How a module's backward hooks get the gradients of its inputs and outputs.

The module's input and output tensors pass through an identity op whose backward reports the gradients that flow
through it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import tensorgrad as torch
from tensorgrad.autograd.function import Function
from tensorgrad.tensor import Tensor


class BackwardHookFunction(Function):
    """The identity. In the backward pass, `seen(gradients)` is called and returns the gradients to pass on.

    For a missing gradient, `seen` gets zeros if `zeros` is True and `None` otherwise. PyTorch uses zeros for a
    module's inputs and `None` for its outputs.
    """

    @staticmethod
    def forward(ctx: Any, seen: Callable, zeros: bool, *tensors: Tensor) -> tuple:
        ctx.set_materialize_grads(zeros)
        ctx.seen = seen
        same = tuple(t.detach() for t in tensors)
        ctx.mark_non_differentiable(*(s for s, t in zip(same, tensors, strict=True) if not t.requires_grad))
        return same

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple:
        return None, None, *ctx.seen(grads)

    @staticmethod
    def jvp(ctx: Any, seen: None, zeros: None, *tangents: Tensor | None) -> tuple:
        return tangents


class BackwardHook:
    """The backward hooks of one call of one module.

    Args:
        module: the module, passed to the hooks.
        hooks: `hook(module, grad_input, grad_output)`, run once the gradients of the inputs are known.
        pre_hooks: `hook(module, grad_output)`, run before the module's backward pass.
    """

    def __init__(self, module: Any, hooks: list[Callable], pre_hooks: list[Callable]):
        self.module, self.hooks, self.pre_hooks = module, hooks, pre_hooks
        self.grad_outputs: tuple | None = None
        self.inputs_watched = False
        self.n_inputs = 0

    def watch_inputs(self, args: tuple) -> tuple:
        """Returns `args` with their tensors passed through the identity that reports their gradients."""
        self.n_inputs = len(args)
        args, self.inputs_watched = _through(args, self._inputs_done, zeros=True)
        return args

    def watch_outputs(self, result: Any) -> Any:
        """Returns the module's result with its tensors passed through the identity that reports their gradients."""
        if not isinstance(result, tuple):
            return _through((result,), self._outputs_done, zeros=False)[0][0]
        watched, _ = _through(result, self._outputs_done, zeros=False)
        return type(result)(*watched) if hasattr(result, "_fields") else watched  # a named tuple stays one

    def _outputs_done(self, grads: tuple) -> tuple:
        for hook in self.pre_hooks:
            grads = _checked(hook(self.module, grads), grads, "Backward pre hook", "grad_output")
        self.grad_outputs = grads
        if not self.inputs_watched:  # no input has a gradient to wait for
            if self.hooks:
                warnings.warn(
                    "Full backward hook is firing when gradients are computed with respect to module outputs since no "
                    "inputs require gradients. See https://docs.pytorch.org/docs/main/generated/torch.nn.Module.html"
                    "#torch.nn.Module.register_full_backward_hook for more details.",
                    stacklevel=5,
                )
            nothing = (None,) * self.n_inputs
            for hook in self.hooks:
                given = hook(self.module, nothing, grads)
                if given is not None and not (isinstance(given, tuple) and all(g is None for g in given)):
                    raise RuntimeError(
                        "Backward hook for Modules where no input requires gradient should always return None or None "
                        "for all gradients."
                    )
            self.grad_outputs = None
        return grads

    def _inputs_done(self, grads: tuple) -> tuple:
        outputs = self.grad_outputs
        if outputs is None:  # the gradients did not come through the module's outputs
            return grads
        for hook in self.hooks:
            grads = _checked(hook(self.module, grads, outputs), grads, "Backward hook", "grad_input")
        self.grad_outputs = None
        return grads


def _through(values: tuple, done: Callable, zeros: bool) -> tuple[tuple, bool]:
    """Returns `values` with tensors replaced by the identity's results, and whether any can have a gradient."""
    positions = [i for i, v in enumerate(values) if isinstance(v, Tensor)]

    def seen(grads: tuple) -> tuple:
        padded: list = [None] * len(values)
        for i, grad in zip(positions, grads, strict=True):
            padded[i] = grad
        padded = done(tuple(padded))
        return tuple(padded[i] for i in positions)

    if not torch.is_grad_enabled() or not any(values[i].requires_grad for i in positions):
        return values, False
    replaced = list(values)
    results = BackwardHookFunction.apply(seen, zeros, *(values[i] for i in positions))
    for i, tensor in zip(positions, results, strict=True):
        replaced[i] = tensor
    return tuple(replaced), True


def _checked(given: Any, grads: tuple, who: str, what: str) -> tuple:
    if given is None:
        return grads
    given = given if isinstance(given, tuple) else (given,)
    if len(given) != len(grads):
        raise RuntimeError(f"{who} returned an invalid number of {what}, got {len(given)}, but expected {len(grads)}")
    return given
