"""Gamma and Dirichlet sampling with gradients for the parameters; used by `torch.distributions`.

PyTorch exposes these four under names with an underscore. The gradients are implicit reparameterization gradients (see
`kernels/array/gamma_gradient.py`); they have no derivatives themselves.
"""

from __future__ import annotations

from collections.abc import Callable

from tensorgrad.dispatch.kinds import composite, op
from tensorgrad.dispatch.no_derivative import not_implemented
from tensorgrad.dtypes import scalar_type
from tensorgrad.kernels.array import rejection
from tensorgrad.ops.random.in_place import on_host
from tensorgrad.ops.random.sample import stream_for
from tensorgrad.ops.shape import broadcast_tensors
from tensorgrad.tensor import Tensor


def _only_full_precision(kernel: str, *arrays) -> None:
    for array in arrays:
        if array.dtype.name not in ("float32", "float64"):
            raise NotImplementedError(f"\"{kernel}\" not implemented for '{scalar_type(array)}'")


def _checked(kernel: str):
    """Makes a check that runs before the kernel: all arrays must be float32, or all float64."""

    def prepare(*arrays):
        _only_full_precision(kernel, *arrays)
        for other in arrays[1:]:
            if other.dtype != arrays[0].dtype:
                raise RuntimeError(f"Found dtype {scalar_type(other)} but expected {scalar_type(arrays[0])}")
        return arrays

    return prepare


_gamma = op("standard_gamma_sample(input, generator: any)",
            on_host(lambda alpha, gen: rejection.standard_gamma(gen, alpha)), kind="sample", where=(),
            input=lambda g, input, out: g * standard_gamma_grad(input, out), jacobian="symmetric",
            backward_name="StandardGammaBackward0")  # fmt: skip
_dirichlet = op("dirichlet_sample(input, generator: any)",
                on_host(lambda alpha, gen: rejection.dirichlet(gen, alpha)), kind="sample", where=(),
                input=lambda g, input, out: _dirichlet_backward(g, input, out),
                jvp=lambda input_t, input, out: _dirichlet_tangent(input_t, input, out),
                backward_name="DirichletBackward0")  # fmt: skip
standard_gamma_grad: Callable = op(
    "standard_gamma_grad(self, output)", "gamma_gradient.standard_gamma_grad", batch="leading", where=(),
    prepare=_checked("_standard_gamma_grad_cpu"), self=not_implemented("_standard_gamma_grad"),
    output=not_implemented("_standard_gamma_grad"), shape=lambda alpha, z: (alpha.shape, alpha.dtype),
    doc="The derivative of a standard gamma variate `output` with respect to its shape parameter `self`.")  # fmt: skip
dirichlet_grad: Callable = op(
    "dirichlet_grad(x, alpha, total)", "gamma_gradient.dirichlet_grad", batch="leading", where=(),
    prepare=_checked("_dirichlet_grad_cpu"), x=not_implemented("_dirichlet_grad"),
    alpha=not_implemented("_dirichlet_grad"), total=not_implemented("_dirichlet_grad"),
    shape=lambda x, alpha, total: (x.shape, x.dtype),
    doc="The derivative of a Beta(alpha, total - alpha) variate with respect to alpha, divided by 1 - x.",
)  # fmt: skip


def _dirichlet_backward(g, alpha, x):
    """Changing one concentration moves its share by a beta variate's gradient; the others shrink in proportion."""
    total = alpha.sum(-1, True).expand(alpha.shape)
    return dirichlet_grad(x, alpha, total) * (g - (x * g).sum(-1, True))


def _dirichlet_tangent(t, alpha, x):
    total = alpha.sum(-1, True).expand(alpha.shape)
    moved = dirichlet_grad(x, alpha, total) * t
    return moved - x * moved.sum(-1, True)


@composite("function")
def _standard_gamma(input: Tensor, generator=None) -> Tensor:
    """Samples gamma variates of scale 1 whose shape parameters are the elements of `input`; differentiable.

    Raises:
        NotImplementedError: If `input` is not float32 or float64.

    >>> _ = torch.manual_seed(0)
    >>> torch._standard_gamma(torch.tensor([1.0, 2.0]))
    tensor([2.8824, 1.3158])
    """
    _only_full_precision("gamma_cpu", input._array)
    return _gamma(input, stream_for(input, generator, "_standard_gamma"))


@composite("function")
def _sample_dirichlet(input: Tensor, generator=None) -> Tensor:
    """Samples from Dirichlet distributions whose concentrations are the rows of `input`; differentiable.

    Raises:
        NotImplementedError: If `input` is not float32 or float64.

    >>> torch._sample_dirichlet(torch.tensor([2.0, 3.0])).sum()
    tensor(1.)
    """
    _only_full_precision("dirichlet", input._array)
    return _dirichlet(input, stream_for(input, generator, "_sample_dirichlet"))


@composite("function")
def _standard_gamma_grad(self: Tensor, output: Tensor) -> Tensor:
    """Returns the derivative of standard gamma variates `output` by their shape parameters `self`, at a fixed quantile.

    >>> torch._standard_gamma_grad(torch.tensor([1.0]), torch.tensor([1.0]))
    tensor([1.1736])
    """
    return standard_gamma_grad(*broadcast_tensors(self, output))


@composite("function")
def _dirichlet_grad(x: Tensor, alpha: Tensor, total: Tensor) -> Tensor:
    """Returns the derivative by `alpha` of beta variates `x` with parameters `alpha`, `total - alpha`, over 1 - x.

    >>> torch._dirichlet_grad(torch.tensor([0.5]), torch.tensor([1.0]), torch.tensor([2.0]))
    tensor([0.6931])
    """
    return dirichlet_grad(*broadcast_tensors(x, alpha, total))
