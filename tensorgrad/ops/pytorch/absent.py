"""Layouts, number formats and devices that only PyTorch has.

Queries for them are answered (a tensor here is always strided, dense, and on cpu, cuda or meta); functions that would
create them raise an error that says they are not supported.
"""

from __future__ import annotations

from tensorgrad.dispatch.kinds import alias, composite
from tensorgrad.errors import warn
from tensorgrad.layouts import layout, strided
from tensorgrad.ops.copy import to
from tensorgrad.ops.linalg.matmul import mm
from tensorgrad.tensor import Tensor

# --- queries -------------------------------------------------------------------------------------------------------


def _always_false(name: str, what: str) -> None:
    example = f">>> import tensorgrad as torch\n>>> torch.ones(1).{name}\nFalse"
    setattr(Tensor, name, property(lambda self: False, doc=f"Always False: there are no {what}.\n\n{example}"))


_always_false("is_sparse", "sparse layouts")
_always_false("is_sparse_csr", "sparse layouts")
_always_false("is_quantized", "quantized tensors")
_always_false("is_nested", "nested tensors")
_always_false("is_mkldnn", "tensors in oneDNN's layouts")
for _device in ("ipu", "maia", "mps", "mtia", "vulkan", "xla", "xpu"):
    _always_false(f"is_{_device}", f"{_device} devices")


def _layout(self: Tensor) -> layout:
    """The memory layout: always `torch.strided`.

    >>> import tensorgrad as torch
    >>> torch.ones(2).layout
    torch.strided
    """
    return strided


setattr(Tensor, "layout", property(_layout, doc=_layout.__doc__))  # noqa: B010


def _volatile(self: Tensor) -> bool:
    """Always False (removed from PyTorch: use `torch.no_grad`).

    >>> import tensorgrad as torch
    >>> torch.ones(2).volatile
    False
    """
    warn("volatile was removed (Variable.volatile is always False)")
    return False


setattr(Tensor, "volatile", property(_volatile, doc=_volatile.__doc__))  # noqa: B010
# Tensors have no names, but PyTorch's have the attribute, and programs assign to it (`x.name = "x"`).
setattr(Tensor, "name", None)  # noqa: B010


@composite("method")
def sparse_dim(self: Tensor) -> int:
    """Returns the number of sparse dimensions: always 0.

    >>> import tensorgrad as torch
    >>> torch.zeros(2, 3).sparse_dim()
    0
    """
    return 0


@composite("method")
def dense_dim(self: Tensor) -> int:
    """Returns the number of dense dimensions: all of them.

    >>> import tensorgrad as torch
    >>> torch.zeros(2, 3).dense_dim()
    2
    """
    return self._array.ndim


@composite("method")
def to_dense(self: Tensor, dtype=None, *, masked_grad: bool | None = None) -> Tensor:
    """Returns the tensor itself, which is dense, cast to `dtype` if given.

    >>> import tensorgrad as torch
    >>> torch.ones(2).to_dense(dtype=torch.float64)
    tensor([1., 1.], dtype=torch.float64)
    """
    return self if dtype is None else to(self, dtype)


alias("spmm", mm, "function")  # PyTorch's takes dense matrices, too

# --- unsupported methods -------------------------------------------------------------------------------------------


def _unsupported(name: str, error: type[Exception], message: str) -> None:
    def method(self, *args, **kwargs):
        raise error(message)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"""Raises {error.__name__}: tensorgrad has no such tensors.

    >>> import tensorgrad as torch
    >>> torch.ones(1).{name}()
    Traceback (most recent call last):
        ...
    {error.__name__}: {message}
    """
    composite("method")(method)


for _name in ("sparse", "sparse_bsc", "sparse_bsr", "sparse_coo", "sparse_csc", "sparse_csr"):
    _unsupported(
        f"to_{_name}", NotImplementedError, f"to_{_name}: sparse layouts are not supported, only strided tensors"
    )
for _name in ("sparse_mask", "sparse_resize_", "sparse_resize_and_clear_", "resize_as_sparse_"):
    _unsupported(_name, NotImplementedError, f"{_name}: sparse layouts are not supported, only strided tensors")
_unsupported("to_mkldnn", NotImplementedError, "to_mkldnn: oneDNN layouts are not supported, only strided tensors")
_unsupported("to_padded_tensor", NotImplementedError, "to_padded_tensor: nested tensors are not supported")
_unsupported("chalf", NotImplementedError, "chalf: the dtype complex32 is not supported")

for _name, _expected in (
    ("is_coalesced", "sparse coordinate tensor"), ("coalesce", "sparse coordinate tensor"),
    ("indices", "sparse coordinate tensor"), ("values", "sparse tensor"),
    ("crow_indices", "sparse row compressed tensor"), ("col_indices", "sparse row compressed tensor"),
    ("ccol_indices", "sparse column compressed tensor"), ("row_indices", "sparse column compressed tensor"),
):  # fmt: skip
    _unsupported(_name, RuntimeError, f"{_name} expected {_expected} layout but got Strided")
for _name in ("smm", "sspaddmm"):
    _unsupported(_name, RuntimeError, f"tensor.{_name}(...) can only be called on sparse tensors")

_unsupported("xpu", AssertionError, "Torch not compiled with XPU enabled")
_unsupported("mtia", AssertionError, "Torch not compiled with MTIA enabled")
_unsupported("ipu", RuntimeError, "PyTorch is not linked with support for ipu devices")
_unsupported(
    "reinforce",
    RuntimeError,
    "reinforce() was removed. Use torch.distributions instead: sample an action from a distribution, and call "
    "backward() on the negative of distribution.log_prob(action) times the reward.",
)
