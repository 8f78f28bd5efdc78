"""Views: the same memory with another shape. Writing to a view writes to its base; gradients flow both ways.

Basic indexing (`x[1:, None]`) is here as the rows `select`, `slice` and `unsqueeze`; ops/index.py translates user
syntax to them. Ops that return several views (`split`, `unbind`, ...) are in ops/split.py; `as_strided` and in-place
changes of shape are in ops/restride.py.
"""

from __future__ import annotations

import inspect
import math
from operator import index as as_int

import numpy as np

from tensorgrad import dtypes
from tensorgrad.autograd.graph import legacy_type_name
from tensorgrad.dispatch import signatures
from tensorgrad.dispatch.kinds import alias, composite, export, op, view
from tensorgrad.dtypes import scalar_type
from tensorgrad.errors import (
    SHORT_MAX,
    SHORT_MIN,
    as_integer,
    as_integers,
    check_of_64_bits,
    integers_given,
    invalid_combination,
    no_dimensions,
    warn,
    wrap_dim,
    wrap_dims,
    wrong_argument,
)
from tensorgrad.kernels.array import matmul as matmul_kernels
from tensorgrad.kernels.array import shape as kernels
from tensorgrad.layouts import inverse
from tensorgrad.tensor import Tensor, share
from tensorgrad.transforms.batch_views import shifted

# --- arguments -----------------------------------------------------------------------------------------------------

_LISTS = (tuple, list)  # to make `tuple | list` takes longer than to ask


def ints(values) -> tuple[int, ...]:
    """Returns a shape or list of dimensions as a tuple of ints, from `(2, 3)`, `((2, 3),)`, `([2, 3],)` or a number.

    Raises: as `as_integers`.
    """
    if values.__class__ is int:
        if not SHORT_MIN <= values <= SHORT_MAX:
            check_of_64_bits(values, "size")
        return (values,)
    if isinstance(values, _LISTS):
        if len(values) == 1 and isinstance(values[0], _LISTS):
            values = values[0]
        for n in values:
            if n.__class__ is not int or not SHORT_MIN <= n <= SHORT_MAX:
                break
        else:
            return tuple(values)
    return as_integers(values, "size")


def listed(values, argument: str) -> tuple[int, ...]:
    """The same where PyTorch takes no number in the place of a list. Raises: TypeError for a number, too."""
    if not isinstance(values, _LISTS):
        raise wrong_argument(values, argument, "tuple of ints")
    return ints(values)


def variadic(name: str, function, keyword: str) -> None:
    """Makes `function(input, values)` a method: `x.name(2, 3)`, `x.name((2, 3))` or `x.name(keyword=(2, 3))`."""

    def method(self, *args, **named) -> Tensor:
        return function(self, args if args and not named else integers_given(name, keyword, args, named))

    method.__name__ = method.__qualname__ = name
    method.__code__ = method.__code__.replace(co_name=name)  # tracebacks and errors.wrong_argument name it
    method.__doc__ = function.__doc__
    export(name, method, "method")


def also_one_by_one(function) -> None:
    """Makes `function(input, values, …)`, whose values may be a number or a list, a method that takes several integers
    without a list, too: `x.name(2, 3)`."""

    def method(self, *args, **named):
        return function(self, *(args if len(args) < 2 or named else (args,)), **named)

    name = method.__name__ = method.__qualname__ = function.__name__
    method.__code__ = method.__code__.replace(co_name=name)
    method.__doc__ = function.__doc__
    signatures.promise(method, lambda: inspect.signature(function))
    export(name, method, "method")


def infer_size(size: tuple[int, ...], numel: int) -> tuple[int, ...]:
    """Returns `size` with its -1 replaced so that there are `numel` elements.

    Raises: RuntimeError if no size fits, or any would.
    """
    product = math.prod(size)
    if product == numel and (not size or min(size) >= 0):
        return size
    if product < 0 and size.count(-1) == 1 and min(size) == -1 and numel % product == 0:
        i = size.index(-1)
        return (*size[:i], numel // -product, *size[i + 1 :])
    as_integers(size, "size")
    known, unknown = 1, None
    for i, n in enumerate(size):
        if n >= 0:
            known *= n
        elif n != -1:
            raise RuntimeError(f"invalid shape dimension {n} at index {i} of shape {list(size)}")
        elif unknown is not None:
            raise RuntimeError("only one dimension can be inferred")
        else:
            unknown = i
    if unknown is not None and known and numel % known == 0:
        return (*size[:unknown], numel // known, *size[unknown + 1 :])
    if unknown is not None and not known and not numel:
        raise RuntimeError(
            f"cannot reshape tensor of 0 elements into shape {list(size)} because the unspecified dimension size -1 "
            "can be any value and is ambiguous"
        )
    raise RuntimeError(f"shape '{list(size)}' is invalid for input of size {numel}")


# --- the rows ------------------------------------------------------------------------------------------------------

_INT = {int}
_view = view("view(input, size: shape)", "shape.view", where=(), on_arrays=True,
             input=lambda g, input_shape: g.reshape(input_shape))  # fmt: skip
_expand = view("expand(input, size: shape)", "shape.expand", where=(), input=lambda g: g)
unsqueeze_view = view("unsqueeze(input, dim: int)", "shape.unsqueeze",
                  prepare=lambda x, dim: (x, wrap_dim(dim, x.ndim + 1)), input=lambda g, dim: g.squeeze(dim),
                  doc="""A view with a new dimension of size 1.

    Args:
        dim: where it is in the result: from 0 to `input.ndim`, or negative, counted from the end.

    Raises:
        IndexError: If `dim` is out of range.
    """)  # fmt: skip
_squeeze = view("squeeze_dims(input, dims: any)", "shape.squeeze", where=(), on_arrays=True,
                backward_name="SqueezeBackward1", input=lambda g, input_shape: g.reshape(input_shape))  # fmt: skip
_squeeze_all = view("squeeze(input, dims: any)", "shape.squeeze", where=(), on_arrays=True,
                    input=lambda g, input_shape: g.reshape(input_shape))  # fmt: skip
_permute = view("permute(input, dims: dims)", "shape.permute", where=(),
                input=lambda g, dims: _permute(g, tuple(inverse(dims))))  # fmt: skip
transpose_view = view("transpose(input, dim0: int, dim1: int)", "shape.transpose",
                  prepare=lambda x, a, b: (x, wrap_dim(a, x.ndim), wrap_dim(b, x.ndim)),
                  input=lambda g, dim0, dim1: transpose_view(g, dim0, dim1),
                  doc="""A view with two dimensions swapped.

    Args:
        dim0, dim1: the two; negative ones are counted from the end.

    Raises:
        IndexError: If one of them is out of range.
    """)  # fmt: skip
alias_of = view("alias(input)", "shape.alias", where=(), input=lambda g: g)
diagonal_view = view("diagonal(input, offset: int, dim1: int, dim2: int)", "shape.diagonal", where=(),
                 input=lambda g, input_shape, offset, dim1, dim2:
                 place(g, input_shape, diagonal_view, (offset, dim1, dim2)))  # fmt: skip
_unfold = view("unfold(input, dimension: int, size: int, step: int)", "shape.unfold", where=(),
               input=lambda g, input_shape, dimension, size, step:
               unfold_grad(g, input_shape, dimension, size, step))  # fmt: skip


def _check_matrix(x):
    if x.ndim > 2 and not hasattr(x, "sparse_dim"):  # of COO, whose kernel checks
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {x.ndim}D")
    return (x,)


t = view("t(input)", "shape.transposed", prepare=_check_matrix, input=lambda g: g.t(),
         doc="A view of the transposed matrix, (n, m) to (m, n); a tensor of fewer dimensions unchanged. Raises "
         "RuntimeError for more than 2 dimensions.")  # fmt: skip

# Basic indexing: three rows with one kernel, so that `grad_fn` has PyTorch's name.
select_at, slice_at, new_axes_at = (
    view(f"{name}(input, index: any)", "shape.at", where=(), backward_name=backward_name,
         input=lambda g, input_shape, index: place(g, input_shape, slice_at, (index,)))
    for name, backward_name in (("select", "SelectBackward0"), ("slice", "SliceBackward0"),
                                ("new_axes", "UnsqueezeBackward0"))
)  # fmt: skip

# --- the rows of their derivatives ---------------------------------------------------------------------------------


def _placed_in_batch(g, shape, shown, args):
    whole = g.new_zeros((g._array.shape[0], *shape))
    _, whole, args = shifted(shown.op.name, whole, shape, args)
    return place(g, whole._array.shape, shown, args)


place = op("embed_view(g, shape: any, shown: any, args: any)",
           lambda xp, g, shape, shown, args: kernels.place(xp, g, shape, shown.op.compiled.kernels[g.__class__], args),
           linear="g", batch=_placed_in_batch,
           g=lambda g, shown, args: shown(g, *args), shape=lambda g, shape, shown, args: (shape, g.dtype), where=(),
           doc="Zeros of `shape` with `g` at the elements of the view: a view's derivative.")  # fmt: skip


def _unfold_grad_in_batch(g, shape, dimension, size, step):
    if not shape:  # of one number, a window of length 0 or 1
        return g.sum(1)
    return unfold_grad(g, (g._array.shape[0], *shape), dimension + 1, size, step)


unfold_grad = op("unfold_grad(g, shape: any, dimension: int, size: int, step: int)", "shape.unfold_grad", linear="g",
                  batch=_unfold_grad_in_batch,
                  g=lambda g, dimension, size, step: _unfold(g, dimension, size, step),
                  shape=lambda g, shape, dimension, size, step: (shape, g.dtype), where=())  # fmt: skip
_reshaped_copy = op("reshape(input, size: any)", lambda xp, x, size: xp.array(x, order="C").reshape(size),
                    linear="input", batch=lambda input, size: _reshape(input, (input._array.shape[0], *size)),
                    input=lambda g, input_shape: g.reshape(input_shape), backward_name="UnsafeViewBackward0",
                    shape=lambda x, size: (size, x.dtype), where=())  # fmt: skip


# --- reshaping -----------------------------------------------------------------------------------------------------


@composite("method", name="view")
def view_(self: Tensor, *args, dtype=None, size=None) -> Tensor:
    """Returns a view with another shape or, as `view(dtype)`, of the same bytes as another dtype.

    One size may be -1, to be inferred from the others.

    Raises:
        RuntimeError: If the number of elements does not fit the shape, or the strides would require a copy.

    >>> torch.arange(6).view(2, -1)
    tensor([[0, 1, 2],
            [3, 4, 5]])
    """
    if args and args[0].__class__ is not int and isinstance(args[0], dtypes.dtype | type):
        dtype = args[0]
    if dtype is not None:
        return _view_as_dtype(self, dtypes.as_dtype(dtype, "view"))
    if not args and size is None:
        raise TypeError("view() received an invalid combination of arguments - got (), but expected a shape or a dtype")
    if size is not None or {*map(type, args)} != _INT:  # to check and convert sizes takes longer than to ask
        args = ints(args if size is None else size)
    return _view(self, infer_size(args, self._array.size))


def _view_as_dtype(self: Tensor, dtype: dtypes.dtype) -> Tensor:
    array, target = self._array, dtype.numpy
    if target == array.dtype:
        return share(array, self._storage)
    if target.itemsize != array.itemsize:
        _check_bytes(self, array, dtype)
    if not array.size and array.__class__ is np.ndarray:  # NumPy drops the strides of empty arrays
        ratio = array.itemsize / target.itemsize
        shape, stride = list(array.shape), [int(s * ratio) for s in self.stride()]
        if shape:
            shape[-1], stride[-1] = int(shape[-1] * ratio), 1 if ratio != 1 else stride[-1]
        memory, steps = self._storage, tuple(s * target.itemsize for s in stride)
        return share(memory.strided(tuple(shape), steps, memory.offset_of(array), target), memory)
    shown = array.view(target) if hasattr(array, "view") else array.__class__(array.phantom.view(target))
    return share(shown, self._storage)  # bytes have no derivative


def _check_bytes(self: Tensor, array, dtype: dtypes.dtype) -> None:
    """Checks that the last dimension can be split or merged into elements of another size."""
    names = f"{scalar_type(self)} as {scalar_type(dtype)} (different element sizes)"
    if not array.ndim:
        raise RuntimeError(f"self.dim() cannot be 0 to view {names}")
    if self.stride(-1) != 1:
        raise RuntimeError(f"self.stride(-1) must be 1 to view {names}, but got {self.stride(-1)}")
    ratio = dtype.itemsize // array.itemsize
    if ratio > 1:
        if array.shape[-1] % ratio:
            raise RuntimeError(f"self.size(-1) must be divisible by {ratio} to view {names}, but got {array.shape[-1]}")
        if self.storage_offset() % ratio:
            raise RuntimeError(
                f"self.storage_offset() must be divisible by {ratio} to view {names}, but got {self.storage_offset()}"
            )
        for i, s in enumerate(self.stride()[:-1]):
            if s % ratio:
                raise RuntimeError(f"self.stride({i}) must be divisible by {ratio} to view {names}, but got {s}")


_FLAT = (-1,)


def _reshape(input: Tensor, size: tuple[int, ...]) -> Tensor:
    array = input._array
    size = (array.size,) if size == _FLAT else infer_size(size, array.size)
    if array.flags.c_contiguous or kernels.view_strides(array.shape, array.strides, size, array.itemsize) is not None:
        return _view(input, size)
    return _reshaped_copy(input, size)


@composite("function")
def reshape(input: Tensor, shape) -> Tensor:
    """Returns the elements, in row-major order, with another shape: a view if possible, else a copy.

    Args:
        shape: a size for each dimension; one may be -1, to be inferred from the others.

    Raises:
        RuntimeError: If the number of elements does not fit the shape.

    >>> torch.reshape(torch.arange(4), (2, 2)).t().reshape(-1)
    tensor([0, 2, 1, 3])
    """
    return _reshape(input, listed(shape, "shape"))


@composite("method", name="reshape")
def _reshape_method(self: Tensor, *shape, **named) -> Tensor:
    """Returns the elements, in row-major order, with another shape: a view if possible, else a copy.

    Args:
        shape: a size for each dimension, in a tuple or one by one; one may be -1, to be inferred from the others.

    >>> torch.arange(6).reshape(2, -1)
    tensor([[0, 1, 2],
            [3, 4, 5]])
    """
    return _reshape(self, ints(shape if shape and not named else integers_given("reshape", "shape", shape, named)))


@composite("method")
def view_as(self: Tensor, other: Tensor) -> Tensor:
    """Returns a view with the shape of `other`.

    Args:
        other: a tensor with as many elements.

    >>> torch.arange(4).view_as(torch.zeros(2, 2))
    tensor([[0, 1],
            [2, 3]])
    """
    if not isinstance(other, Tensor):
        raise wrong_argument(other, "other", "Tensor")
    return view_(self, *other.shape) if other._array.ndim else view_(self, ())


@composite("method")
def reshape_as(self: Tensor, other: Tensor) -> Tensor:
    """Returns this tensor with the shape of `other`: a view if possible, else a copy.

    Args:
        other: a tensor with as many elements.

    >>> torch.arange(4).reshape_as(torch.zeros(2, 2))
    tensor([[0, 1],
            [2, 3]])
    """
    if not isinstance(other, Tensor):
        raise wrong_argument(other, "other", "Tensor")
    return _reshape(self, other.shape)


@composite()
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Flattens the dimensions from `start_dim` to `end_dim` (inclusive) into one.

    Args:
        start_dim, end_dim: the first and the last of these dimensions.

    >>> torch.zeros(2, 3, 4).flatten(1).shape
    torch.Size([2, 12])
    """
    shape = input._array.shape
    start, end = wrap_dim(start_dim, len(shape)), wrap_dim(end_dim, len(shape))
    if start > end:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if not shape:
        return _view(input, (1,))
    if start == end:
        return input
    return _reshape(input, (*shape[:start], math.prod(shape[start : end + 1]), *shape[end + 1 :]))


@composite()
def ravel(input: Tensor) -> Tensor:
    """Flattens all elements into one dimension, in row-major order.

    >>> torch.ravel(torch.tensor([[1, 2], [3, 4]]))
    tensor([1, 2, 3, 4])
    """
    size = (input._array.size,)
    return _view(input, size) if input._array.flags.c_contiguous else _reshaped_copy(input, size)


@composite()
def unflatten(input: Tensor, dim: int, sizes) -> Tensor:
    """Splits dimension `dim` into several with the given sizes, one of which may be -1.

    Raises:
        RuntimeError: If the product of the sizes is not the size of the dimension.

    >>> torch.arange(6).unflatten(0, (2, 3))
    tensor([[0, 1, 2],
            [3, 4, 5]])
    """
    shape = input._array.shape
    sizes = listed(sizes, "sizes")
    if not sizes:
        raise RuntimeError("unflatten: sizes must be non-empty")
    if not shape:
        raise RuntimeError(f"unflatten got an unexpected error:\n{no_dimensions(0)}")
    dim = wrap_dim(dim, len(shape))
    if sizes.count(-1) > 1:
        raise RuntimeError("unflatten got an unexpected error:\nonly one dimension can be inferred")
    known = math.prod(n for n in sizes if n != -1)
    if (shape[dim] != known) if -1 not in sizes else (not known or shape[dim] % known):
        raise RuntimeError(
            f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim {dim} ({shape[dim]}) in the "
            "input tensor"
        )
    return _view(input, (*shape[:dim], *infer_size(sizes, shape[dim]), *shape[dim + 1 :]))


# --- dimensions of size 1 ------------------------------------------------------------------------------------------


@composite("function")
def squeeze(input: Tensor, dim=None) -> Tensor:
    """Returns a view without the dimensions of size 1; with `dim` (one or several), only those of them are removed.

    Args:
        dim: one dimension, or a tuple; dimensions of another size stay.

    >>> torch.zeros(1, 2, 1).squeeze().shape, torch.zeros(1, 2, 1).squeeze(0).shape
    (torch.Size([2]), torch.Size([2, 1]))
    """
    ndim = input._array.ndim
    if dim is None:
        return _squeeze_all(input, tuple(range(ndim)))
    if dim.__class__ is int:
        return _squeeze(input, (wrap_dim(dim, ndim),))
    return _squeeze(input, wrap_dims(ints(dim), ndim))


@composite("method", name="squeeze")
def squeeze_method(self: Tensor, dim=None, *more) -> Tensor:
    """Returns a view without the dimensions of size 1, or without those of them that are named.

    Args:
        dim: one dimension or several, in a tuple or one by one; dimensions of another size stay.

    >>> x = torch.zeros(1, 2, 1)
    >>> x.squeeze().shape, x.squeeze(0).shape, x.squeeze(0, 2).shape
    (torch.Size([2]), torch.Size([2, 1]), torch.Size([2]))
    """
    return squeeze(self, (dim, *more) if more else dim)


def _expanded_size(shape: tuple, size: tuple, array) -> tuple:
    """Returns `size` with each -1 replaced by the existing size."""
    lead = len(size) - len(shape)
    if lead < 0:
        raise RuntimeError(
            f"expand({legacy_type_name(array)}{{{list(shape)}}}, size={list(size)}): the number of sizes provided "
            f"({len(size)}) must be greater or equal to the number of dimensions in the tensor ({len(shape)})"
        )
    for i, n in enumerate(size):
        if n < 0 and (i < lead or n != -1):
            raise RuntimeError(
                f"The expanded size of the tensor ({n}) isn't allowed in a leading, non-existing dimension {i}"
            )
    return tuple([shape[i - lead] if n == -1 else n for i, n in enumerate(size)])


def expand(input: Tensor, size) -> Tensor:
    """Returns a view in which dimensions of size 1 are repeated without copying, and new ones are added in front.

    A size of -1 keeps a dimension.

    Raises:
        RuntimeError: If a dimension of a size other than 1 would change.

    >>> torch.tensor([[1], [2]]).expand(2, 3)
    tensor([[1, 1, 1],
            [2, 2, 2]])
    >>> torch.zeros(3).expand(2, -1).shape
    torch.Size([2, 3])
    """
    size = listed(size, "size")
    array = input._array
    if -1 in size or len(size) < array.ndim:
        size = _expanded_size(array.shape, size, array)
    return _expand(input, size)


variadic("expand", expand, "size")


@composite("method")
def expand_as(self: Tensor, other: Tensor) -> Tensor:
    """Returns a view of this tensor expanded to the shape of `other`.

    Args:
        other: a tensor whose shape this one broadcasts to.

    >>> torch.tensor([[1], [2]]).expand_as(torch.zeros(2, 3))
    tensor([[1, 1, 1],
            [2, 2, 2]])
    """
    if not isinstance(other, Tensor):
        raise wrong_argument(other, "other", "Tensor")
    return expand(self, other.shape)


@composite("function")
def broadcast_to(input: Tensor, size) -> Tensor:
    """Returns a view of `input` broadcast to the shape `size`.

    >>> torch.broadcast_to(torch.tensor([1, 2]), (2, 2))
    tensor([[1, 2],
            [1, 2]])
    """
    return expand(input, size)


variadic("broadcast_to", broadcast_to, "size")


@composite("function")
def broadcast_shapes(*shapes):
    """Returns the shape to which all `shapes` broadcast.

    Raises:
        RuntimeError: If the shapes are not compatible.

    >>> torch.broadcast_shapes((2, 1), (3,), (1, 1, 1))
    torch.Size([1, 2, 3])
    """
    from tensorgrad.size import Size

    for shape in shapes:
        if not isinstance(shape, tuple | list | int | str | None.__class__):
            raise RuntimeError(f"Input shapes should be of type ints, a tuple of ints, or a list of ints, got {shape}")
    found: list[int] = []
    for shape in map(ints, shapes):
        found = [1] * (len(shape) - len(found)) + found
        for i, n in enumerate(shape, len(found) - len(shape)):
            if n < 0:
                raise RuntimeError(f"Trying to create tensor with negative dimension ({n}): ({list(shape)})")
            if found[i] == 1:
                found[i] = n
            elif n not in (1, found[i]):
                raise RuntimeError(
                    "Shape mismatch: objects cannot be broadcast to a single shape: "
                    f"{', '.join(str(list(ints(s))) for s in shapes)}"
                )
    return Size(found)


@composite("function")
def broadcast_tensors(*tensors) -> tuple[Tensor, ...]:
    """Returns views of all tensors, broadcast to their common shape.

    Raises:
        RuntimeError: If the shapes are not compatible.

    >>> a, b = torch.broadcast_tensors(torch.ones(3), torch.ones(2, 1))
    >>> a.shape, b.shape
    (torch.Size([2, 3]), torch.Size([2, 3]))
    """
    if len(tensors) == 1 and isinstance(tensors[0], tuple | list):
        tensors = tuple(tensors[0])
    size: tuple = ()
    for x in tensors:
        size = matmul_kernels.broadcast_lead(size, x._array.shape)
    return tuple([_expand(x, size) for x in tensors])


# --- permuting dimensions ------------------------------------------------------------------------------------------


@composite("function")
def permute(input: Tensor, dims) -> Tensor:
    """Returns a view with the dimensions in the order `dims`.

    Raises:
        RuntimeError: If `dims` does not contain each dimension exactly once.

    >>> torch.zeros(2, 3, 4).permute(2, 0, 1).shape
    torch.Size([4, 2, 3])
    """
    dims = listed(dims, "dims")
    ndim = input._array.ndim
    if len(dims) != ndim:
        raise RuntimeError(
            "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired "
            f"ordering of dimensions i.e. input.dim() = {ndim} is not equal to len(dims) = {len(dims)}"
        )
    wrapped = tuple([wrap_dim(d, ndim) for d in dims])
    if len(set(wrapped)) != ndim:
        raise RuntimeError("permute(): duplicate dims are not allowed.")
    return _permute(input, wrapped)


variadic("permute", permute, "dims")
alias("swapaxes", transpose_view)
alias("swapdims", transpose_view)


@composite()
def movedim(input: Tensor, source, destination) -> Tensor:
    """Returns a view with the dimensions `source` moved to the positions `destination`; the others keep their order.

    Args:
        source: a dimension, or several.
        destination: where each of them is in the result.

    >>> torch.zeros(2, 3, 4).movedim(0, -1).shape
    torch.Size([3, 4, 2])
    """
    if isinstance(source, tuple | list) is not isinstance(destination, tuple | list):
        raise invalid_combination("movedim", "expected source and destination to be two ints or two tuples of ints")
    source, destination = ints(source), ints(destination)
    if len(source) != len(destination):
        raise RuntimeError(
            f"movedim: Invalid source or destination dims: source ({list(source)} dims) should contain the same number "
            f"of dims as destination ({list(destination)} dims)"
        )
    ndim = input._array.ndim
    wrapped = []
    for name, dims in (("source", source), ("destination", destination)):
        wrapped.append([wrap_dim(d, ndim) for d in dims])
        if len(set(wrapped[-1])) != len(dims):
            raise RuntimeError(f"movedim: repeated dim in `{name}` ({list(dims)})")
    if not ndim:
        return alias_of(input)
    order: list = [None] * ndim
    for s, d in zip(*wrapped, strict=True):
        order[d] = s
    rest = iter(d for d in range(ndim) if d not in wrapped[0])
    return _permute(input, tuple([next(rest) if d is None else d for d in order]))


alias("moveaxis", movedim)


def _deprecated(message: str) -> None:
    warn(message)


def _matrices(self: Tensor, name: str) -> bool:
    """Returns whether there are matrices to transpose; a 0-dimensional tensor only gets PyTorch's warning."""
    if self._array.ndim == 1:
        raise RuntimeError(f"tensor.{name} is only supported on matrices or batches of matrices. Got 1-D tensor.")
    if not self._array.ndim:
        advice = (
            "Consider using x.conj()."
            if "H" in name or "a" in name
            else "This function is the identity in these cases."
        )
        _deprecated(f"Tensor.{name} is deprecated on 0-D tensors. {advice}")
    return self._array.ndim > 1


def _T(self: Tensor) -> Tensor:
    """The transposed matrix, as a view (deprecated for other than two dimensions: reverses all of them).

    >>> torch.tensor([[1, 2], [3, 4]]).T
    tensor([[1, 3],
            [2, 4]])
    """
    ndim = self._array.ndim
    if ndim > 2:
        _deprecated(
            "The use of `x.T` on tensors of dimension other than 2 to reverse their shape is deprecated and it will "
            "throw an error in a future release. Consider `x.mT` to transpose batches of matrices or "
            "`x.permute(*torch.arange(x.ndim - 1, -1, -1))` to reverse the dimensions of a tensor."
        )
    elif not ndim:
        _deprecated("Tensor.T is deprecated on 0-D tensors. This function is the identity in these cases.")
    return _permute(self, tuple(range(ndim - 1, -1, -1)))


def _mT(self: Tensor) -> Tensor:
    """A view with the last two dimensions swapped.

    >>> torch.zeros(5, 2, 3).mT.shape
    torch.Size([5, 3, 2])
    """
    return transpose_view(self, -2, -1) if _matrices(self, "mT") else self


def _mH(self: Tensor) -> Tensor:
    """The conjugate transpose of the last two dimensions.

    >>> torch.tensor([[1 + 2j, 3j]]).mH
    tensor([[1.-2.j],
            [0.-3.j]])
    """
    return transpose_view(self, -2, -1).conj() if _matrices(self, "mH") else self.conj()


def _H(self: Tensor) -> Tensor:
    """The conjugate transpose of a matrix.

    >>> torch.tensor([[1 + 2j, 3j]]).H
    tensor([[1.-2.j],
            [0.-3.j]])
    """
    if self._array.ndim not in (0, 2):
        raise RuntimeError(
            f"tensor.H is only supported on matrices (2-D tensors). Got {self._array.ndim}-D tensor."
            + (" For batches of matrices, consider using tensor.mH" if self._array.ndim > 2 else "")
        )
    return _mH(self)


for _name, _get in (("T", _T), ("mT", _mT), ("mH", _mH), ("H", _H)):
    setattr(Tensor, _name, property(_get, doc=_get.__doc__))


@composite()
def adjoint(input: Tensor) -> Tensor:
    """Returns the conjugate transpose of the last two dimensions.

    >>> torch.adjoint(torch.tensor([[1 + 2j, 3j]]))
    tensor([[1.-2.j],
            [0.-3.j]])
    """
    return transpose_view(input, -2, -1).conj() if _matrices(input, "adjoint()") else input.conj()


# --- selecting parts -----------------------------------------------------------------------------------------------


@composite()
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """Returns the view of the slice at `index` along `dim`; that dimension is removed.

    Raises:
        IndexError: If the index is out of range.

    >>> torch.select(torch.tensor([[1, 2], [3, 4]]), 1, 0)
    tensor([1, 3])
    """
    shape = input._array.shape
    if not shape:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    dim, index = wrap_dim(dim, len(shape)), as_int(index)
    if not -shape[dim] <= index < shape[dim]:
        raise IndexError(f"select(): index {index} out of range for tensor of size {list(shape)} at dimension {dim}")
    return select_at(input, ((slice(None),) * dim) + (index, Ellipsis))


def window(input: Tensor, dim: int, start: int | None, stop: int | None, step: int = 1) -> Tensor:
    """Returns the view `input[..., start:stop:step, ...]` at dimension `dim`; all arguments are already normalized."""
    return slice_at(input, (slice(None),) * dim + (slice(start, stop, None if step == 1 else step),))


def _position(value, argument: str) -> int:
    return value if value.__class__ is int else as_integer(value, argument)


@composite()
def narrow(input: Tensor, dim: int, start, length: int) -> Tensor:
    """Returns the view of `length` elements along `dim`, starting at `start`.

    Raises:
        RuntimeError: If the elements extend beyond the end.
        IndexError: If `start` itself is out of range.

    >>> torch.arange(5).narrow(0, 1, 3)
    tensor([1, 2, 3])
    """
    shape = input._array.shape
    if not shape:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    if isinstance(start, Tensor) and (start.ndim or start._array.dtype.kind not in "iu"):
        raise RuntimeError("start must be an 0-dim integral Tensor.")
    dim, start, length = wrap_dim(dim, len(shape)), _position(start, "start"), _position(length, "length")
    if length < 0:
        raise RuntimeError("narrow(): length must be non-negative.")
    n = shape[dim]
    if not -n <= start <= n:
        check_of_64_bits(start, "start")
        raise IndexError(f"start out of range (expected to be in range of [{-n}, {n}], but got {start})")
    start += n if start < 0 else 0
    if start + length > n:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({n}).")
    return window(input, dim, start, start + length)


@composite()
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Returns a view of the diagonals of the matrices in dimensions `dim1` and `dim2`, as the last dimension.

    >>> torch.arange(9).view(3, 3).diagonal(1)
    tensor([1, 5])
    """
    ndim = input._array.ndim
    a, b = wrap_dim(dim1, ndim), wrap_dim(dim2, ndim)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    return diagonal_view(input, as_int(offset), a, b)


@composite("method", name="unfold")
def unfold(self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Returns a view of all windows of `size` elements along `dimension`, `step` apart, in a new last dimension.

    >>> torch.arange(5).unfold(0, 2, 2)
    tensor([[0, 1],
            [2, 3]])
    """
    shape = self._array.shape or (1,)
    dimension = wrap_dim(dimension, len(shape))
    if size < 0:
        raise RuntimeError(f"size is {size} but must be >= 0")
    if size > shape[dimension]:
        raise RuntimeError(f"maximum size for tensor at dimension {dimension} is {shape[dimension]} but size is {size}")
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    return _unfold(self, dimension, size, step)
