"""`x[...]` and `x[...] = v`: translates the index into views and the op `index`.

Integers, slices, None and Ellipsis make a view, in one op. The remaining integer tensors and masks then index that
view. (The two steps are needed because NumPy treats an integer as an index array where PyTorch applies the slice
first.)
"""

from __future__ import annotations

from operator import index as as_int

import numpy as np

from tensorgrad import dtypes
from tensorgrad.dispatch import inplace
from tensorgrad.dispatch.kinds import composite, op
from tensorgrad.dispatch.out import check_sources, is_expanded, store_out
from tensorgrad.dtypes import scalar_type
from tensorgrad.errors import check_number, warn
from tensorgrad.kernels.array import advanced as kernels
from tensorgrad.kernels.array import shape as shape_kernels
from tensorgrad.layouts import inverse
from tensorgrad.ops.create import arange, tensor, wrapped
from tensorgrad.ops.shape import Tensor, alias_of, expand, new_axes_at, select_at, slice_at, unsqueeze_view
from tensorgrad.overriding import function_classes
from tensorgrad.rows.switches import SLOW
from tensorgrad.storage.sparse import SparseArray
from tensorgrad.tensor import PLAIN, wrap
from tensorgrad.transforms.batch import BatchedArray, whole

# --- the rows ------------------------------------------------------------------------------------------------------


def _index_shape(x, indices, pattern):
    if any(a.dtype.kind == "b" for a in indices):
        raise NotImplementedError("index: the shape of x[mask] depends on the mask's values, which 'meta' tensors lack")
    return kernels.shape_of(x.shape, indices, pattern), x.dtype


def _index_order(x, indices, pattern):
    """The order in memory of what is found."""
    return kernels.order_in_memory(x, indices, pattern)


_index_order.unless = (  # type: ignore[attr-defined]
    "x0.flags.c_contiguous and len(x1) == 1 and (x1[0].ndim == 1 or x1[0].flags.c_contiguous)"
)


class _Placed:
    """How index tensors, some of which may have a batch, index a value: the tensors, their pattern, and in what order
    the dimensions of the result are, compared with those of the batch followed by one sample's result."""

    def __init__(self, indices, pattern, size: int, mapped: list, rank: int, whole: bool):
        tensors: list[Tensor] = []
        places: list[int | None] = []
        batched: list[bool] = []
        for k in pattern:
            if k is None:
                places.append(None)
                continue
            parts = [indices[k]]
            if indices[k].dtype is dtypes.bool:
                if mapped[k]:
                    raise RuntimeError(
                        "vmap: We do not support batching operators that can support dynamic shape. Attempting to "
                        "batch over indexing with a boolean mask."
                    )
                parts = indices[k].nonzero(as_tuple=True)
            places += range(len(tensors), len(tensors) + len(parts))
            tensors += parts
            batched += [mapped[k]] * len(parts)
        ranks = [t.ndim - b for t, b in zip(tensors, batched, strict=True)]
        self.rank = max(ranks)
        at = [d for d, k in enumerate(places) if k is not None]
        together = at[-1] - at[0] == len(at) - 1
        first = at[0] if together else 0  # where one sample's result has the dimensions of the indices
        kept = rank - len(at)  # the other dimensions
        if any(batched):
            tensors = [
                t.reshape(size, *(1,) * (self.rank - r), *t.shape[1:]) if b else t
                for t, b, r in zip(tensors, batched, ranks, strict=True)
            ]
            if whole:
                places = [len(tensors), *places]
                tensors.append(arange(size, device=tensors[0].device).reshape(size, *(1,) * self.rank))
                first_now = 0
            else:
                first_now = first
            inside = [*range(1 + first, 1 + first + self.rank)]  # the dimensions of the indices in (batch, result)
            others = [d for d in range(1, 1 + self.rank + kept) if d not in inside]
            self.order = [*others[:first_now], 0, *inside, *others[first_now:]]
        else:
            places = [None, *places]
            now = [0, *range(1, 1 + self.rank + kept)]
            self.order = now if together else [*range(1, 1 + self.rank), 0, *range(1 + self.rank, 1 + self.rank + kept)]
        self.tensors, self.pattern = tensors, tuple(places)

    def back(self, result):
        """A result with the batch first."""
        return result.permute(inverse(self.order))


def _index_in_batch(input, indices, pattern, size, mapped, mapped_indices):
    whole = "input" in mapped
    placed = _Placed(indices, pattern, size, mapped_indices, input.ndim - whole, whole)
    return placed.back(_index(input, placed.tensors, placed.pattern))


def _put_in_batch(input, indices, values, pattern, accumulate, size, mapped, mapped_indices):
    input = input if "input" in mapped else input.expand(size, *input.shape)
    placed = _Placed(indices, pattern, size, mapped_indices, input.ndim - 1, True)
    rank = len(placed.order) - 1
    for _ in range(rank + 1 - values.ndim if "values" in mapped else 0):
        values = values.unsqueeze(1)
    for _ in range(rank + 1 - values.ndim):
        values = values.unsqueeze(0)
    return _index_put(input, placed.tensors, values.permute(placed.order), placed.pattern, accumulate)


def _put_back_in_batch(g, indices, pattern, shape, size, mapped, mapped_indices):
    zeros, named = g.new_zeros((size, *shape)), {"input", "values"} if "g" in mapped else {"input"}
    return _put_in_batch(zeros, indices, g, pattern, True, size, named, mapped_indices)


_index = op("index(input, indices: tensors, pattern: any)", "advanced.index", linear="input", where=(),
            batch=_index_in_batch,
            shape=_index_shape, strides=_index_order,
            input=lambda g, input_shape, indices, pattern: _index_grad(g, indices, pattern, input_shape))  # fmt: skip
_index_grad = op("index_grad(g, indices: tensors, pattern: any, shape: any)", "advanced.index_grad", linear="g",
                 where=(), batch=_put_back_in_batch,
                 g=lambda g, indices, pattern: _index(g, indices, pattern),
                 shape=lambda g, indices, pattern, shape: (shape, g.dtype))  # fmt: skip
_index_put = op("index_put(input, indices: tensors, values, pattern: any, accumulate: bool)", "advanced.index_put",
                linear="input + values", batch=_put_in_batch, strides="input",
                input=lambda g, indices, pattern, accumulate:
                g if accumulate else _index_put(g, indices, g.new_zeros(()), pattern, False),
                values=lambda g, indices, pattern: _index(g, indices, pattern),
                shape=lambda x, *rest: (x.shape, x.dtype), where=())  # fmt: skip
_nonzero = op("nonzero(input)", "advanced.nonzero", strides="columns", where=(), batch="no batch")

# --- translating the index -----------------------------------------------------------------------------------------


_INTS = {int, type(None)}


def _plain_slice(s: slice) -> slice:
    """Converts the parts to int or None. Raises: ValueError unless the step is positive, TypeError for no integer."""
    if s.step is None and s.start.__class__ in _INTS and s.stop.__class__ in _INTS:
        return s
    parts = []
    for part in (s.start, s.stop, s.step):
        if part is not None and part.__class__ is not int:
            if not hasattr(part, "__index__"):
                raise TypeError("slice indices must be integers or None or have an __index__ method")
            part = as_int(part)
        parts.append(part)
    if parts[2] is not None and parts[2] <= 0:
        raise ValueError("step must be greater than zero" if parts[2] else "slice step cannot be zero")
    return slice(*parts)


def _view(x: Tensor, index: tuple) -> Tensor:
    """Basic indexing, in one op; as in PyTorch, `grad_fn` is named after the last step."""
    row, integer, ellipsis = None, False, False
    for i in index:
        if i.__class__ is int:
            row, integer = select_at, True
        elif i.__class__ is slice:
            row = slice_at
        elif i is None:
            row = new_axes_at
        else:
            ellipsis = True
    if row is None:
        return alias_of(x)
    return row(x, (*index, Ellipsis) if integer and not ellipsis else index)


def _simple(index: tuple):
    """Returns the index, normalized, if it has only integers, slices, None and at most one Ellipsis; else None."""
    ellipsis, odd = False, False
    for i in index:
        cls = i.__class__
        if cls is int or i is None:
            continue
        if cls is slice:
            odd = odd or i.step is not None or i.start.__class__ not in _INTS or i.stop.__class__ not in _INTS
        elif i is Ellipsis and not ellipsis:
            ellipsis = True
        elif cls is Tensor and _is_number(i._array):
            odd = True
        else:
            return None
    if not odd:
        return index
    return tuple([_plain_slice(i) if i.__class__ is slice else _number(i) for i in index])


def _is_number(index) -> bool:
    """Returns whether an index array is a single integer in host memory."""
    return index.dtype is _INT64 and not index.ndim and index.__class__ is np.ndarray


def _number(item):
    return item._array.item() if item.__class__ is Tensor else item


def _items(index) -> tuple:
    """Returns the index as a tuple. As in old NumPy, a short list that holds more than numbers counts as a tuple."""
    if isinstance(index, tuple):
        return index
    if isinstance(index, list) and len(index) < 32:
        for i in index:
            if i is None or i is Ellipsis or isinstance(i, slice | Tensor | np.ndarray | list | tuple):
                return tuple(index)
    return (index,)


def _plain_item(item):
    """Converts one item of the index to an int, a slice, None, Ellipsis, a bool, or a tensor of indices or a mask.

    Raises: IndexError for anything else.
    """
    cls = item.__class__
    if cls is int or cls is bool or item is None or item is Ellipsis:
        return item
    if cls is slice:
        return _plain_slice(item)
    if isinstance(item, str):
        raise TypeError("new(): invalid data type 'str'")
    if isinstance(item, np.ndarray | list | tuple | range):
        item = _index_list(item)
    if isinstance(item, np.bool_):
        return bool(item)
    if isinstance(item, Tensor):
        return _index_tensor(item)
    if hasattr(item, "__index__"):
        return as_int(item)
    error = Overridden if function_classes.overrides(item) else IndexError
    raise error(
        "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got "
        f"{type(item).__name__})"
    )


def _index_list(items):
    """Converts a list or array of indices or bools to a tensor."""
    if not len(items):
        return _no_indices()
    if isinstance(items, list) and items[0].__class__ is int:
        array = np.array(items)
        if array.dtype.kind == "i":
            return wrap(array.astype(np.int64, copy=False))
    return tensor(items if isinstance(items, np.ndarray) else list(items))


def _no_indices() -> Tensor:
    return tensor(np.empty(0, np.int64))


def _no_bytes(mask: Tensor) -> Tensor:
    """Converts a uint8 mask, which old PyTorch versions used, to a boolean one."""
    warn("indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.")
    return mask.bool()


def _index_tensor(item: Tensor):
    """Converts an index tensor: to an int or bool if it is 0-dimensional, else returns it as indices or a mask."""
    if item._array.__class__ is BatchedArray and not item.ndim and item._array.dtype.kind in "iu":
        return item.to(dtypes.int64)  # another number for each sample
    if item._array.dtype is _INT64:
        return item if item.ndim else item.item()
    name = item._array.dtype.name
    if name == "uint8":
        item, name = _no_bytes(item), "bool"
    if name not in ("bool", "int64", "int32") and (item.ndim or name[:3] != "int"):
        raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
    return item if item.ndim else item.item()


def _translate(x: Tensor, index):
    """Returns the view of `x` that the basic part of `index` makes, the index tensors into it, and their pattern.

    Raises: IndexError for an invalid index, too many indices, or a mask of the wrong shape.
    """
    items = [_plain_item(i) for i in _items(index)]
    taken = 0
    for i in items:
        if isinstance(i, Tensor):
            taken += i.ndim if i._array.dtype.kind == "b" else 1
        elif i is not None and i is not Ellipsis and i.__class__ is not bool:
            taken += 1
    ndim = x._array.ndim
    if taken > ndim:
        shape_kernels.raise_index_error(x._array.shape, (0,) * taken)
    basic: list = []
    advanced: list[tuple[int, Tensor]] = []
    dim = 0  # dimension of the view
    for i in items:
        if i.__class__ is bool:
            basic.append(None)
            advanced.append((dim, tensor([0]) if i else _no_indices()))
            dim += 1
        elif isinstance(i, Tensor):
            width = i.ndim if i._array.dtype.kind == "b" else 1
            advanced.append((dim, i))
            basic += [slice(None)] * width
            dim += width
        elif i is Ellipsis:
            if Ellipsis not in basic:
                basic.append(i)
                dim += ndim - taken
        else:
            basic.append(i)
            dim += i.__class__ is not int
    trivial = all(i is Ellipsis or (i.__class__ is slice and i == slice(None)) for i in basic)
    if advanced and trivial:
        view = x
    else:
        view = _view(x, tuple(basic))
    return (view, *_pattern(view, advanced))


def _pattern(view: Tensor, advanced: list[tuple[int, Tensor]]):
    """Returns the index tensors on the view's device and, per leading dimension, which of them (or None) indexes it."""
    tensors: list[Tensor] = []
    pattern: list = []
    at = 0
    shape = view._array.shape
    for dim, t in advanced:
        pattern += [None] * (dim - at)
        at = dim + 1
        if t._array.dtype.kind == "b":
            at = dim + t.ndim
            for k, n in enumerate(t._array.shape):
                if n != shape[dim + k]:
                    raise IndexError(
                        f"The shape of the mask {list(t.shape)} at index {k} does not match the shape of the indexed "
                        f"tensor {list(shape)} at index {dim + k}"
                    )
        if t._array.__class__ is not view._array.__class__:
            t = t.to(view.device)
        pattern.append(len(tensors))
        tensors.append(t)
    return tensors, tuple(pattern)


def _getitem(self: Tensor, index) -> Tensor:
    """`x[index]`: a view for integers, slices, None and Ellipsis; a copy if index tensors or masks are involved."""
    cls = index.__class__
    if cls is int:
        return select_at(self, (index, Ellipsis))
    if cls is slice:
        return slice_at(self, (_plain_slice(index),))
    if cls is tuple:
        plain = _simple(index)
        if plain is not None:
            return _view(self, plain)
        if _only_arrays(index, self._array):
            return _index(self, list(index), tuple(range(len(index))))
    elif index is None:
        return unsqueeze_view(self, 0)
    elif index is Ellipsis:
        return alias_of(self)
    elif cls is Tensor:
        if _is_number(index._array):
            return select_at(self, (index._array.item(), Ellipsis))
        if _indexes_directly(index._array, self._array):
            return _index(self, [index], (0,))
    view, tensors, pattern = _translate(self, index)
    return _index(view, tensors, pattern) if tensors else view


def _indexes_directly(index, array) -> bool:
    """Returns whether an index array indexes (or masks) just the leading dimensions, with nothing else to do."""
    if not index.ndim or index.__class__ is not array.__class__:
        return False
    if index.dtype.kind == "b":
        return array.shape[: index.ndim] == index.shape
    return index.dtype is _INT64 and array.ndim > 0


def _only_arrays(index, array) -> bool:
    """Returns whether a tuple holds only index arrays of one shape, for leading dimensions, and nothing else."""
    if not 0 < len(index) <= array.ndim:
        return False
    shape = None
    for item in index:
        if item.__class__ is not Tensor:
            return False
        own = item._array
        if own.dtype is not _INT64 or not own.ndim or own.__class__ is not array.__class__:
            return False
        if shape is None:
            shape = own.shape
        elif own.shape != shape:
            return False
    return True


_INT64 = np.dtype("int64")
_INDEX_TYPES = (_INT64, np.dtype("bool"), np.dtype("uint8"), np.dtype("int32"))

# --- item assignment -------------------------------------------------------------------------------------------------

_NUMBERS = (bool, int, float, complex)


class Overridden(IndexError):
    """An index of a class that overrides functions: it is asked what a write to it does."""


def _setitem(self: Tensor, index, value) -> None:
    """`x[index] = value`, for a number or a tensor, broadcast and cast. Errors come before any write."""
    number = isinstance(value, _NUMBERS)
    if not number and not isinstance(value, Tensor):
        if not isinstance(value, np.integer):
            module = "numpy." if isinstance(value, np.ndarray | np.generic) else ""
            raise TypeError(f"can't assign a {module}{type(value).__name__} to a {self.type()}")
        value, number = int(value), True
    cls = index.__class__
    if cls is Tensor and _is_number(index._array):
        index, cls = index._array.item(), int
    plain = (index,) if cls is int else None if cls is bool else _simple(index if cls is tuple else (index,))
    if inplace.writable(self) and (number or inplace.readable(value)) and _written(self, index, plain, value, number):
        return
    value = inplace.as_stored(self, value)
    if isinstance(self._array, SparseArray):
        raise TypeError("Cannot assign to a sparse tensor")
    if plain is not None:
        view, tensors, pattern = _view(self, plain), None, None
        if view._array.shape == self._array.shape and None not in plain:
            view = self  # all of it (`x[:] = y`), which needs no view
    else:
        try:
            view, tensors, pattern = _translate(self, index)
        except Overridden:
            types = tuple(function_classes.classes_of((self, index, value)))
            return function_classes.call(_setitem, types, (self, index, value), {})
    if not tensors:
        _assign(view, value, number)
        return
    if number:
        check_number(value, self.dtype)
        value = tensor(wrapped(value, self.dtype), dtype=self.dtype, device=self.device)
    elif len(tensors) == 1 and not value.ndim and tensors[0]._array.dtype.kind == "b":
        value = value.to(self.dtype, copy=True)  # PyTorch reads and casts a single element written to a mask first
    if value._array.__class__ is not view._array.__class__ and value.numel() == 1:
        value = value.to(view.device)
    _put(view, tensors, pattern, _without_leading_ones(value, 0), False)


def _written(x: Tensor, index, plain, value, number: bool) -> bool:
    """Writes directly into the array in simple cases: basic indexing, a mask or whole index arrays, and no cast."""
    array = x._array
    mask = False
    if plain is not None:
        plain = plain if Ellipsis in plain else (*plain, Ellipsis)
        try:
            part = array[plain]
        except IndexError:
            shape_kernels.raise_index_error(array.shape, plain)
        shape = part.shape
    else:
        part, index = None, index if index.__class__ is tuple else (index,)
        if len(index) == 1 and index[0].__class__ is Tensor and index[0]._array.dtype.kind == "b":
            mask = _indexes_directly(index[0]._array, array)
            if not mask:
                return False
        elif not _only_arrays(index, array):
            return False
        for item in index:
            if item is x or (item._memory is not None and item._memory is x._memory):
                return False  # they may overlap
        index = tuple([i._array for i in index])
        shape = index[0].shape + array.shape[len(index) :]
    if number:
        check_number(value, x.dtype)
        if array.dtype.kind == "u" and value < 0:
            return False
    else:
        if value._memory is not None and value._memory is x._memory:
            return False  # they may overlap
        value = value._array
        if mask or value.dtype is not array.dtype or (value.shape != shape and value.ndim):
            return False
    storage = x._memory
    if storage is None:
        storage = x._storage
    if storage.version is None:
        storage.check_writable()
    else:
        storage.version += 1
    if part is not None:
        part[...] = value
        return True
    try:
        array[index] = value
    except IndexError:
        kernels.check_indices(array.shape, index, tuple(range(len(index))))
        raise
    return True


def _without_leading_ones(value: Tensor, ndim: int) -> Tensor:
    """Removes leading dimensions of size 1 from `value`, down to `ndim` dimensions."""
    shape = value._array.shape
    extra = 0
    while len(shape) - extra > ndim and shape[extra] == 1:
        extra += 1
    return value.reshape(shape[extra:]) if extra else value


def _assign(view: Tensor, value, number: bool) -> None:
    if number:
        inplace.check_no_overlap(view)  # which `fill_` does not ask for
        view.fill_(value)
        return
    if value._array.shape != view._array.shape:
        value = expand(_without_leading_ones(value, 0), view._array.shape)
    view.copy_(value)


def _put(x: Tensor, tensors, pattern, values: Tensor, accumulate: bool) -> Tensor:
    """Writes (or adds) `values` in place to the elements of `x` selected by the index tensors."""
    _check_same_dtype(x, tensors, pattern, values)
    check_sources(x, (*tensors, values), refuses=True)
    array = x._array
    if (
        accumulate or SLOW or array.__class__ is not np.ndarray or inplace._tracked(x, (values,))
        or any([t.__class__ not in PLAIN for t in (x, *tensors, values)])
    ):  # fmt: skip
        return inplace.replace(x, _index_put, (tensors, values, pattern, accumulate), {}, apart=False)
    if is_expanded(array):
        warn(
            "Use of index_put_ on expanded tensors is deprecated. Please clone() the tensor before performing this "
            "operation. This also applies to advanced indexing e.g. tensor[indices] = tensor"
        )
    indices = [t._array for t in tensors]
    kernels.check_values(array.shape, indices, values._array, pattern)
    x._storage.bump()
    try:
        array[kernels.assembled(indices, pattern)] = values._array
    except (IndexError, ValueError):
        kernels.check_indices(array.shape, indices, pattern)
        raise
    return x


_setitem.__name__ = "__setitem__"  # what classes that override it are told
Tensor.__getitem__, Tensor.__setitem__ = _getitem, _setitem  # type: ignore[assignment]


def _delitem(self, index):
    raise TypeError("Tensor does not support deleting items")


Tensor.__delitem__ = _delitem


# --- index_put -------------------------------------------------------------------------------------------------------


def _put_arguments(name: str, input: Tensor, indices, values: Tensor):
    if not isinstance(indices, tuple | list):
        raise TypeError(
            f"{name}(): argument 'indices' (position 1) must be tuple of Tensors, not {type(indices).__name__}"
        )
    items = []
    for i, item in enumerate(indices):
        if item is not None and not isinstance(item, Tensor):
            raise TypeError(f"expected Tensor as element {i} in argument 0, but got {type(item).__name__}")
        if item is not None and item._array.dtype not in _INDEX_TYPES:
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
        items.append(item)
    advanced, dim = [], 0
    for item in items:
        if item is None:
            dim += 1
            continue
        item = _no_bytes(item) if item._array.dtype == np.uint8 else item
        mask = item._array.dtype.kind == "b"
        advanced.append((dim, item))
        dim += item.ndim if mask else 1
    if dim > input.ndim:
        raise IndexError(f"too many indices for tensor of dimension {input.ndim} (got {dim})")
    if not isinstance(values, Tensor):
        raise TypeError(f"{name}(): argument 'values' (position 2) must be Tensor, not {type(values).__name__}")
    if not advanced:
        raise RuntimeError(f"{name}(): expected at least one tensor among the indices")
    return _pattern(input, advanced)


@composite()
def index_put(input: Tensor, indices, values: Tensor, accumulate: bool = False) -> Tensor:
    """Returns a copy of `input` with `values` written (`accumulate`: added) at the positions given by `indices`.

    `indices` is a tuple of index tensors or masks, as in `input[indices]`.

    Raises:
        IndexError: If an index is out of range.
        RuntimeError: If `values` has another dtype or cannot be broadcast.

    >>> torch.zeros(3).index_put((torch.tensor([0, 2]),), torch.tensor(1.0))
    tensor([1., 0., 1.])
    """
    tensors, pattern = _put_arguments("index_put", input, indices, values)
    _check_same_dtype(input, tensors, pattern, values)
    return _index_put(input, tensors, values, pattern, accumulate)


def _check_same_dtype(input: Tensor, tensors, pattern, values: Tensor) -> None:
    if values._array.dtype != input._array.dtype:
        kernels.check_values(input._array.shape, [t._array for t in tensors], values._array, pattern)
        raise RuntimeError(
            f"Index put requires the source and destination dtypes match, got {scalar_type(input)} for the "
            f"destination and {scalar_type(values)} for the source."
        )


@composite("method", "function")
def index_put_(self: Tensor, indices, values: Tensor, accumulate: bool = False) -> Tensor:
    """In-place version of `index_put`: writes `values` into this tensor and returns it."""
    tensors, pattern = _put_arguments("index_put_", self, indices, values)
    return _put(self, tensors, pattern, values, accumulate)


# --- nonzero elements ------------------------------------------------------------------------------------------------


def _first_nonzero(input: Tensor, size: int, fill_value: int) -> Tensor:
    """The coordinates of the first nonzero elements of each sample of a batch (vmap)."""
    shape, flat = input._array.shape, input.reshape(-1) != 0
    places = (~flat).to(dtypes.int64).argsort(stable=True)[:size]
    found = arange(len(places), device=input.device) < flat.sum()
    columns: list[Tensor] = []
    rest = places
    for n in reversed(shape):
        columns.insert(0, (rest % max(n, 1)).where(found, fill_value))
        rest = rest // max(n, 1)
    rows = input.new_full((size, len(shape)), fill_value, dtype=dtypes.int64)
    for d, column in enumerate(columns):
        rows[: len(places), d] = column
    return rows


@composite()
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1, out=None) -> Tensor:
    """Returns the indices of nonzero elements as exactly `size` rows, truncated or padded with `fill_value`.

    Raises:
        RuntimeError: If `size` is negative.
        TypeError: If `size` is missing.

    >>> torch.nonzero_static(torch.tensor([0, 3, 4]), size=3)
    tensor([[ 1],
            [ 2],
            [-1]])
    """
    if size < 0:
        raise RuntimeError("nonzero_static: 'size' must be an non-negative integer")
    if out is not None and out.dtype is not dtypes.int64:
        raise RuntimeError(
            "nonzero_static: Expected out tensor to have scalar type Long but got scalar type" + scalar_type(out)
        )
    if input.is_meta:
        rows = input.new_empty((size, input.ndim), dtype=dtypes.int64)
    elif whole(input) is not input:
        rows = _first_nonzero(input, size, fill_value)
    else:
        found = _nonzero(input)[:size]
        rows = found.new_full((size, input.ndim), fill_value)
        rows[: len(found)] = found
    return store_out("nonzero_static", out, rows)


@composite()
def nonzero(input: Tensor, *, as_tuple: bool = False, out=None):
    """Returns the indices of the nonzero elements: one row each or, with `as_tuple`, one tensor per dimension.

    Raises:
        RuntimeError: If `out` is not int64, or is given together with `as_tuple`.
        TypeError: If `out` is not a tensor.

    >>> torch.tensor([0, 3, 4]).nonzero()
    tensor([[1],
            [2]])
    """
    if out is not None and not isinstance(out, Tensor):
        raise TypeError(f"nonzero(): argument 'out' must be Tensor, not {type(out).__name__}")
    if out is not None and as_tuple:
        raise RuntimeError("nonzero does not support the out kwarg when as_tuple is True")
    if out is not None and out.dtype is not dtypes.int64:
        raise RuntimeError(
            f"nonzero: Expected out tensor to have scalar type Long but got scalar type{scalar_type(out)}"
        )
    if as_tuple:
        return _nonzero(input if input._array.ndim else input.reshape(1)).unbind(1)
    return _nonzero(input, out=out)


@composite()
def argwhere(input: Tensor) -> Tensor:
    """Returns the indices of the nonzero elements, one row each.

    >>> torch.argwhere(torch.tensor([[0, 4], [5, 0]]))
    tensor([[0, 1],
            [1, 0]])
    """
    return _nonzero(input)


@composite()
def masked_select(input: Tensor, mask: Tensor, *, out=None) -> Tensor:
    """Returns the elements of `input` where `mask` (broadcast with it) is True, as a vector.

    >>> x = torch.tensor([1, 5, 3])
    >>> x.masked_select(x > 2)
    tensor([5, 3])
    """
    if not isinstance(mask, Tensor):
        raise TypeError(f"masked_select(): argument 'mask' (position 1) must be Tensor, not {type(mask).__name__}")
    if mask._array.dtype.kind != "b":
        raise RuntimeError("masked_select: expected BoolTensor for mask")
    if input._array.shape != mask._array.shape:
        from tensorgrad.ops.shape import broadcast_tensors

        input, mask = broadcast_tensors(input, mask)
    if not input._array.ndim:
        input, mask = input.reshape(1), mask.reshape(1)
    return store_out("masked_select", out, _index(input, [mask], (0,)), (input, mask))
