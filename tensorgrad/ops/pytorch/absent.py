"""Layouts, number formats and devices that only PyTorch has.

Queries for them are answered (a tensor here is strided or sparse, and on cpu, cuda or meta); functions that would
create them raise an error that says they are not supported.
"""

from __future__ import annotations

from tensorgrad.dispatch.kinds import composite
from tensorgrad.errors import warn
from tensorgrad.tensor import Tensor

# --- queries -------------------------------------------------------------------------------------------------------


def _always_false(name: str, what: str) -> None:
    example = f">>> torch.ones(1).{name}\nFalse"
    setattr(Tensor, name, property(lambda self: False, doc=f"Always False: there are no {what}.\n\n{example}"))


_always_false("is_nested", "nested tensors")
_always_false("is_mkldnn", "tensors in oneDNN's layouts")
for _device in ("ipu", "maia", "mps", "mtia", "vulkan", "xla", "xpu"):
    _always_false(f"is_{_device}", f"{_device} devices")


def _volatile(self: Tensor) -> bool:
    """Always False (removed from PyTorch: use `torch.no_grad`).

    >>> torch.ones(2).volatile
    False
    """
    warn("volatile was removed (Variable.volatile is always False)")
    return False


setattr(Tensor, "volatile", property(_volatile, doc=_volatile.__doc__))  # noqa: B010
# Tensors have no names, but PyTorch's have the attribute, and programs assign to it (`x.name = "x"`).
setattr(Tensor, "name", None)  # noqa: B010


# --- unsupported methods -------------------------------------------------------------------------------------------


def _unsupported(name: str, error: type[Exception], message: str) -> None:
    def method(self, *args, **kwargs):
        raise error(message)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"""Raises {error.__name__}: tensorgrad has no such tensors.

    >>> torch.ones(1).{name}()
    Traceback (most recent call last):
        ...
    {error.__name__}: {message}
    """
    composite("method")(method)


_unsupported("to_mkldnn", NotImplementedError, "to_mkldnn: oneDNN layouts are not supported, only strided tensors")
_unsupported("to_padded_tensor", NotImplementedError, "to_padded_tensor: nested tensors are not supported")

_unsupported("xpu", AssertionError, "Torch not compiled with XPU enabled")
_unsupported("mtia", AssertionError, "Torch not compiled with MTIA enabled")
_unsupported("ipu", RuntimeError, "PyTorch is not linked with support for ipu devices")
_unsupported(
    "reinforce",
    RuntimeError,
    "reinforce() was removed. Use torch.distributions instead: sample an action from a distribution, and call "
    "backward() on the negative of distribution.log_prob(action) times the reward.",
)
