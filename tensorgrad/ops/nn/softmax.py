"""Softmax and its logarithm.

Their derivatives need only the output: y (g - Σ g y), and g - exp(y) Σ g. The Jacobian is never formed. That of
softmax, diag(y) - y yᵀ, is symmetric; that of its logarithm is not: its tangent is t - Σ exp(y) t.
"""

from __future__ import annotations

from tensorgrad import dtypes
from tensorgrad.dispatch.kinds import composite, op
from tensorgrad.dispatch.out import store_out
from tensorgrad.dtypes import scalar_type
from tensorgrad.errors import warn, wrap_dim
from tensorgrad.ops.special.special import SPECIAL
from tensorgrad.tensor import Tensor


def _checker(name: str):
    def prepare(x, dim):
        if x.dtype.kind not in "fV" and x.size:
            raise NotImplementedError(f"\"{name}_lastdim_kernel_impl\" not implemented for '{scalar_type(x)}'")
        return x, wrap_dim(dim, x.ndim)

    return prepare


_softmax = op("softmax(input, dim: int)", "softmax.softmax", where=(), kind="same shape", prepare=_checker("softmax"),
              input=lambda g, out, dim: out * (g - (g * out).sum(dim, True)), jacobian="symmetric",
              backward_kernel="softmax.softmax_grad", backward_name="SoftmaxBackward0")  # fmt: skip
_log_softmax = op("log_softmax(input, dim: int)", "softmax.log_softmax", where=(), kind="same shape",
                  prepare=_checker("log_softmax"), twin=lambda input, dim: input - input.logsumexp(dim, True),
                  input=lambda g, out, dim: g - out.exp() * g.sum(dim, True),
                  jvp=lambda input_t, out, dim: input_t - (out.exp() * input_t).sum(dim, True),
                  backward_kernel="softmax.log_softmax_grad", backward_name="LogSoftmaxBackward0")  # fmt: skip


def _finish(function, name, input, dim, dtype, out):
    if dtype is not None and dtype is not input.dtype:
        input = input.to(dtype)
    made = function(input, dim)
    return made if out is None else store_out(name, out, made)


@composite()
def softmax(input: Tensor, dim: int, dtype: dtypes.dtype | None = None, *, out=None) -> Tensor:
    """Computes exp(x) / Σ exp(x) along `dim` without overflow; `dtype` casts the input first.

    For its logarithm use `log_softmax`, which is accurate where a probability is too small for the dtype.

    Args:
        dim: the dimension along which the results add up to 1.

    Raises:
        NotImplementedError: If the dtype is integral.
        IndexError: If `dim` is out of range.

    >>> torch.tensor([0.0, 0.0]).softmax(0)
    tensor([0.5000, 0.5000])
    """
    return _finish(_softmax, "softmax", input, dim, dtype, out)


@composite()
def log_softmax(input: Tensor, dim: int, dtype: dtypes.dtype | None = None, *, out=None) -> Tensor:
    """Computes x - log Σ exp(x) along `dim`: the logarithm of `softmax`, without overflow.

    >>> torch.log_softmax(torch.tensor([0.0, 0.0]), dim=0)
    tensor([-0.6931, -0.6931])
    """
    return _finish(_log_softmax, "log_softmax", input, dim, dtype, out)


def _implicit_dim(name: str, ndim: int) -> int:
    """Returns the dimension that programs without `dim` rely on, with a warning."""
    warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument.",
    )
    return 0 if ndim in (0, 1, 3) else 1


@composite("functional", name="softmax")
def functional_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype=None) -> Tensor:
    """Computes `torch.softmax`; `dim` defaults, with a warning, to 0 for 0, 1 or 3 dimensions and else to 1.

    Args:
        dim: the dimension along which the results add up to 1.

    >>> torch.nn.functional.softmax(torch.tensor([0.0, 0.0]), dim=0)
    tensor([0.5000, 0.5000])
    """
    if dim is None:
        dim = _implicit_dim("softmax", input.ndim)
    return _finish(_softmax, "softmax", input, dim, dtype, None)


@composite("functional", name="log_softmax")
def functional_log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype=None) -> Tensor:
    """Computes `torch.log_softmax`; `dim` defaults, with a warning, to 0 for 0, 1 or 3 dimensions and else to 1.

    Args:
        dim: the dimension along which the exponentials of the results add up to 1.

    >>> torch.nn.functional.log_softmax(torch.tensor([[1.0, 1.0, 3.0]]), dim=1)
    tensor([[-2.2395, -2.2395, -0.2395]])
    """
    if dim is None:
        dim = _implicit_dim("log_softmax", input.ndim)
    return _finish(_log_softmax, "log_softmax", input, dim, dtype, None)


@composite("functional")
def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype=None) -> Tensor:
    """Computes `softmax(-input)`: the smallest elements get the largest probabilities.

    >>> torch.nn.functional.softmin(torch.tensor([0.0, 1.0]), dim=0)
    tensor([0.7311, 0.2689])
    """
    if dim is None:
        dim = _implicit_dim("softmin", input.ndim)
    return _finish(_softmax, "softmax", -input, dim, dtype, None)


SPECIAL.update(log_softmax=log_softmax, softmax=softmax)
