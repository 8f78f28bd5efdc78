"""What users may do with a node besides hooks: call it, and inspect what it saved (`grad_fn._saved_self`)."""

from __future__ import annotations

from typing import Any

from tensorgrad.autograd.graph import SEEN, Node


def _call(self, *gradients):
    """Returns the gradients of the inputs, given those of the outputs: see `autograd/node_calls.py`."""
    from tensorgrad.autograd import node_calls

    return node_calls.call(self, gradients)


def _getattr(self, name: str) -> Any:
    if not name.startswith(("_saved_", "_raw_saved_")):
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
    from tensorgrad.autograd import saved_attributes

    return saved_attributes.value(self, name)


def _dir(self) -> list[str]:
    from tensorgrad.autograd import saved_attributes

    return [*object.__dir__(self), *saved_attributes.names(self)]


Node.__call__, Node.__dir__ = _call, _dir
SEEN["__getattr__"] = _getattr
