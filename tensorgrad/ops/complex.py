"""Complex numbers: real and imaginary parts as views, conjugates, angles, and construction from parts.

PyTorch conjugates lazily, with a flag on a view; here `conj` computes a new tensor immediately. `resolve_conj` and
`resolve_neg` therefore have nothing to do.
"""

from __future__ import annotations

from tensorgrad import dtypes
from tensorgrad.dispatch.kernel_errors import unsupported
from tensorgrad.dispatch.kinds import composite, export, pointwise, view
from tensorgrad.dispatch.out import store_out
from tensorgrad.dtypes import COMPLEX_KINDS, scalar_type
from tensorgrad.ops.create import check_tensor
from tensorgrad.ops.pointwise import zero
from tensorgrad.tensor import Tensor

# --- views ---------------------------------------------------------------------------------------------------------

_real = view("real(input)", "pointwise.real_part", where=(), input=lambda g: g)
_imag = view("imag(input)", "pointwise.imaginary_part", where=(), input=lambda g: g * 1j)
_view_as_real = view("view_as_real(input)", "pointwise.as_real", where=(),
                     input=lambda g: view_as_complex(g.contiguous()))  # fmt: skip
_view_as_complex = view("view_as_complex(input)", "pointwise.as_complex", where=(),
                        input=lambda g: view_as_real(g))  # fmt: skip


@composite("function")
def real(input: Tensor) -> Tensor:
    """Returns the real part as a view; a real tensor is returned unchanged.

    >>> torch.real(torch.tensor([1 + 2j]))
    tensor([1.])
    """
    return _real(input) if input._array.dtype.kind in COMPLEX_KINDS else input


@composite("function")
def imag(input: Tensor) -> Tensor:
    """Returns the imaginary part as a view.

    Raises:
        RuntimeError: If the tensor is real.

    >>> torch.imag(torch.tensor([1 + 2j]))
    tensor([2.])
    """
    if input._array.dtype.kind not in COMPLEX_KINDS:
        raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
    return _imag(input)


Tensor.real = property(real, lambda self, value: _write_part(real(self), value), doc=real.__doc__)  # type: ignore
Tensor.imag = property(imag, lambda self, value: _write_part(imag(self), value), doc=imag.__doc__)  # type: ignore


def _write_part(part: Tensor, value) -> None:
    part.copy_(value) if isinstance(value, Tensor) else part.fill_(value)


@composite("function")
def view_as_real(input: Tensor) -> Tensor:
    """Returns a view of a complex tensor as pairs (real, imaginary) in a new last dimension of size 2.

    Raises:
        RuntimeError: If the tensor is real.

    >>> torch.view_as_real(torch.tensor([1 + 2j]))
    tensor([[1., 2.]])
    """
    if input._array.dtype.kind not in COMPLEX_KINDS:
        raise RuntimeError("view_as_real is only supported for complex tensors")
    return _view_as_real(input)


@composite("function")
def view_as_complex(input: Tensor) -> Tensor:
    """Returns a view of the pairs in the last dimension (of size 2) as complex numbers.

    Raises:
        RuntimeError: If the dtype is not float16, float32 or float64, the last dimension does not have size 2, or the
            strides or the storage offset do not fit complex elements.

    >>> torch.view_as_complex(torch.tensor([[1.0, 2.0]]))
    tensor([1.+2.j])
    """
    if input.dtype not in (dtypes.float16, dtypes.float32, dtypes.float64):
        raise RuntimeError(
            "view_as_complex is only supported for half, float and double tensors, but got a tensor of scalar type: "
            f"{scalar_type(input)}"
        )
    if not input.ndim:
        raise RuntimeError("Input tensor must have one or more dimensions")
    if input.shape[-1] != 2:
        raise RuntimeError("Tensor must have a last dimension of size 2")
    *others, last = input.stride()
    if last != 1:
        raise RuntimeError("Tensor must have a last dimension with stride 1")
    if any(s % 2 for s in others):
        raise RuntimeError("Tensor must have a stride divisible by 2 for all but last dimension")
    if input.storage_offset() % 2:
        raise RuntimeError("Tensor must have a storage_offset divisible by 2")
    return _view_as_complex(input)


# --- conjugates ----------------------------------------------------------------------------------------------------

_conj = pointwise("conj(input)", "conjugate", where=(), in_place=False, input=lambda g: g.conj())
_conj_physical = pointwise("conj_physical(input)", "conjugate", where=(), input=lambda g: g.conj())


@composite()
def conj(input: Tensor) -> Tensor:
    """Returns the complex conjugate as a new tensor; a real tensor is returned unchanged.

    >>> torch.conj(torch.tensor([1 + 2j]))
    tensor([1.-2.j])
    """
    return _conj(input) if input._array.dtype.kind in COMPLEX_KINDS else input


@composite(in_place=_conj_physical)
def conj_physical(input: Tensor, *, out=None) -> Tensor:
    """Returns the complex conjugate; a real tensor is returned unchanged.

    >>> torch.conj_physical(torch.tensor([1 + 2j]))
    tensor([1.-2.j])
    """
    return _conj_physical(input, out=out) if input.dtype.is_complex else store_out("conj_physical", out, input)


export("conj_physical_", Tensor.conj_physical_, "function")


@composite()
def resolve_conj(input: Tensor) -> Tensor:
    """Returns `input`: conjugation is never pending, because `conj` is computed immediately.

    >>> x = torch.tensor([1 + 2j])
    >>> torch.resolve_conj(x.conj())
    tensor([1.-2.j])
    """
    check_tensor("resolve_conj", input)
    return input


@composite()
def resolve_neg(input: Tensor) -> Tensor:
    """Returns `input`: negation is never pending, because it is computed immediately.

    >>> torch.resolve_neg(torch.tensor([1 + 2j]).conj().imag)
    tensor([-2.])
    """
    check_tensor("resolve_neg", input)
    return input


@composite()
def is_conj(input: Tensor) -> bool:
    """Returns False always: conjugates are computed immediately.

    >>> torch.is_conj(torch.tensor([1 + 2j]))
    False
    """
    check_tensor("is_conj", input)
    return False


@composite()
def is_neg(input: Tensor) -> bool:
    """Returns False always: negations are computed immediately.

    >>> torch.is_neg(torch.tensor([1.0]))
    False
    """
    check_tensor("is_neg", input)
    return False


# --- magnitude and angle -------------------------------------------------------------------------------------------

angle = pointwise("angle(input)", "pointwise.angle", rule="float", in_place=False,
                  input=lambda g, input: _angle_slope(g, input),
                  doc="The argument of a complex number in radians, in [-π, π]; 0 or π for real numbers.")  # fmt: skip


def _angle_slope(g, z):
    """g · i / conj(z): perpendicular to z, of length 1 / |z|. Zero for real numbers."""
    if z._array.dtype.kind not in COMPLEX_KINDS:
        return zero(g)
    return (g * 1j / z.conj()).masked_fill(z == 0, 0)


@composite()
def isreal(input: Tensor) -> Tensor:
    """Returns a boolean tensor: whether the imaginary part of each element is 0.

    >>> torch.isreal(torch.tensor([1 + 0j, 1j]))
    tensor([ True, False])
    """
    if input._array.dtype.kind in COMPLEX_KINDS:
        return imag(input.detach()) == 0
    from tensorgrad.ops.create import ones_like

    return ones_like(input, dtype=dtypes.bool)


def _check_parts(real, imag):
    for x in (real, imag):
        if x.dtype.kind != "f":
            names = " and ".join(scalar_type(dtypes.from_numpy_dtype(v.dtype)) for v in (real, imag))
            raise RuntimeError(f"Expected both inputs to be Half, Float or Double tensors but got {names}")
    return real, imag


_complex = pointwise("complex(real, imag)", "pointwise.join_parts", linear="real + imag", numbers=(), where=(),
                     in_place=False,
                     prepare=_check_parts,
                     real=lambda g: g.real, imag=lambda g: g.imag)  # fmt: skip


@composite("function", name="complex")
def complex_(real: Tensor, imag: Tensor, *, out=None) -> Tensor:
    """Builds a complex tensor from its real and imaginary parts, which must have the same floating-point dtype.

    Raises:
        RuntimeError: If the dtypes differ or are not floating-point.

    >>> torch.complex(torch.tensor([1.0]), torch.tensor([2.0]))
    tensor([1.+2.j])
    """
    _same_dtype(real, imag)
    return _complex(real, imag, out=out)


@composite("function")
def polar(abs: Tensor, angle: Tensor, *, out=None) -> Tensor:
    """Computes `abs · (cos angle + i sin angle)`, with `angle` in radians; both of the same floating-point dtype.

    >>> torch.polar(torch.tensor([2.0]), torch.tensor([0.0]))
    tensor([2.+0.j])
    """
    _check_parts(abs._array, angle._array)
    _same_dtype(abs, angle)
    if abs.dtype is dtypes.float16:
        unsupported("polar", abs._array)
    return _complex(abs * angle.cos(), abs * angle.sin(), out=out)


def _same_dtype(first: Tensor, second: Tensor) -> None:
    _check_parts(first._array, second._array)
    if first.dtype is not second.dtype:
        raise RuntimeError(
            f"Expected object of scalar type {scalar_type(first)} but got scalar type {scalar_type(second)} for "
            "second argument"
        )
