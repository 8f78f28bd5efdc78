"""Constructors of sparse tensors, and their checks.

Indices outside the tensor are refused always, unlike in PyTorch, where `check_invariants` asks for it: kernels rely on
them. The other rules (order, no repetitions) are checked on request.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tensorgrad.kernels.sparse.table  # noqa: F401  registers the kernels
from tensorgrad import devices, dtypes, layouts
from tensorgrad.dispatch.kinds import composite, op
from tensorgrad.dtypes import from_numpy_dtype, scalar_type
from tensorgrad.errors import check_flags, typename
from tensorgrad.layouts import AnyLayout
from tensorgrad.ops.create import LEGACY, resolve_device, tensor
from tensorgrad.ops.sparse import arguments
from tensorgrad.ops.sparse.invariants import check_sparse_tensor_invariants as checks
from tensorgrad.ops.sparse_parts import values_at
from tensorgrad.storage.sparse import COMPRESSED, COOArray, SparseArray
from tensorgrad.tensor import Tensor, wrap

_of_values = op(
    "sparse_of_values(values, pattern)",
    lambda xp, values, pattern: pattern.with_values(values),
    batch="sparse",
    linear="values",
    values=lambda g, pattern: values_at(g, pattern),
    backward_name="SparseCooTensorWithDimsAndTensorsBackward0",
    where=(),
)


def _given(value: Any, dtype: Any, name: str, argument: str) -> Tensor:
    """An argument as a dense tensor."""
    made = value if isinstance(value, Tensor) else tensor(value, dtype=dtype)
    if isinstance(made._array, SparseArray):
        raise TypeError(f"{name}: expected {argument} to be a dense tensor, got layout torch.{made.layout.name}")
    return made


def _on_cpu(name: str, device: Any, *parts: Tensor) -> None:
    wanted = resolve_device(device) if device is not None else devices.CPU
    found = next((t.device for t in parts if t.device.type != "cpu"), wanted)
    if found.type != "cpu":
        raise NotImplementedError(f"{name}: sparse layouts are supported on the CPU only, got device {found}")


def _index_array(t: Tensor) -> np.ndarray:
    """A copy of given indices, which nothing else can change."""
    return np.array(t._array, order="C")


def _finished(values: Tensor, array: Any, requires_grad: bool, pin_memory: bool) -> Tensor:
    """The new tensor: differentiable with respect to its values, unless they move to pinned memory."""
    check_flags(pin_memory=pin_memory, requires_grad=requires_grad)
    made = _of_values(values, wrap(array))
    made = made.pin_memory() if pin_memory else made
    return made.requires_grad_() if requires_grad and made.is_leaf else made


# --- COO -----------------------------------------------------------------------------------------------------------


def sparse_coo_tensor(
    indices: Any = None, values: Any = None, size: Any = None, *, dtype: Any = None, device: Any = None,
    pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> Tensor:  # fmt: skip
    """Returns a sparse tensor in COO layout: `values[k]` stands at the coordinates `indices[:, k]`.

    Args:
        indices: Integers (sparse dims, n). Coordinates may repeat: their values add up.
        values: Shape (n, *dense dims).
        size: The shape; by default just large enough. `sparse_coo_tensor(size)` is empty.
        check_invariants: Whether `is_coalesced=True` is checked (see `torch.sparse.check_sparse_tensor_invariants`).
        is_coalesced: Whether each coordinate is known to occur once, in order.

    Raises:
        RuntimeError: If the shapes do not fit each other, or an index is outside of `size`.

    >>> torch.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3)).to_dense()
    tensor([[0., 0., 3.],
            [4., 0., 0.]])
    """
    name = "sparse_coo_tensor"
    dtype = arguments.kind(name, dtype)
    arguments.flags(
        name, pin_memory=pin_memory, requires_grad=requires_grad, check_invariants=check_invariants,
        is_coalesced=is_coalesced,
    )  # fmt: skip
    if values is None and (size is not None or indices is not None) and not isinstance(indices, Tensor):
        shape = arguments.sizes(name, "size", size if indices is None else indices)
        found = dtypes.DEFAULT.floating if dtype is None else dtype
        _on_cpu(name, device)
        empty = COOArray.without_elements(shape, found.numpy)
        return _finished(wrap(empty.values), empty, requires_grad, pin_memory)
    if values is None or indices is None:
        raise TypeError(
            f"{name}() received an invalid combination of arguments: expected indices and values, or a size"
        )
    at = _given(indices, dtypes.int64, name, "indices")
    given = _given(values, None if dtype is None else dtype, name, "values")
    given = given if dtype is None else given.to(dtype)
    _on_cpu(name, device, at, given)
    if at._array.dtype.kind not in "iuf" and at._array.size:
        raise TypeError(f"{name}: expected indices of integers, got {scalar_type(at.dtype)}")
    where = _index_array(at).astype(np.int64, copy=False)
    if where.ndim != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(where.shape)}")
    if not given._array.ndim:
        given = given.reshape(1)
    array = given._array
    if where.shape[1] != array.shape[0]:
        raise RuntimeError(
            f"indices and values must have same nnz, but got nnz from indices: {where.shape[1]}, nnz from values: "
            f"{array.shape[0]}"
        )
    if size is None:
        _no_negative(where)
        largest = where.max(1) + 1 if where.shape[1] else np.zeros(len(where), np.int64)
        shape = (*(int(n) for n in largest), *array.shape[1:])
    else:
        shape = arguments.sizes(name, "size", size)
    check_coo(where, array, shape)
    pattern = COOArray(where, array, shape, coalesced=bool(is_coalesced) or where.shape[1] < 2)
    if is_coalesced and (checks.on if check_invariants is None else check_invariants):
        from tensorgrad.kernels.sparse.coordinates import keys

        found_keys = keys(where, shape)
        if not (found_keys[1:] > found_keys[:-1]).all():
            raise RuntimeError("cannot set is_coalesced to true if indices correspond to uncoalesced COO tensor")
    return _finished(given, pattern, requires_grad, pin_memory)


def _no_negative(where: np.ndarray) -> None:
    if where.size and where.min() < 0:
        dim, _ = np.argwhere(where < 0)[0]
        raise RuntimeError(f"found negative index {where[dim].min()} for dim {dim}")


def check_coo(where: np.ndarray, values: np.ndarray, shape: tuple[int, ...]) -> None:
    """Raises: RuntimeError unless indices and values fit the shape, with all indices inside it."""
    dense_dim = values.ndim - 1
    if len(shape) != len(where) + dense_dim:
        raise RuntimeError(
            f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(shape)}, sparse_dim = "
            f"{len(where)}, dense_dim = {dense_dim}"
        )
    if values.shape[1:] != shape[len(where) :]:
        raise RuntimeError(
            f"values has incorrect size, expected {[values.shape[0], *shape[len(where) :]]}, got {list(values.shape)}"
        )
    _no_negative(where)
    if where.shape[1]:
        for dim, (largest, n) in enumerate(zip(where.max(1), shape)):
            if largest >= n:
                raise RuntimeError(
                    f"size is inconsistent with indices: for dim {dim}, size is {n} but found index {largest}"
                )


# --- compressed ----------------------------------------------------------------------------------------------------


def sparse_compressed_tensor(
    compressed_indices: Any, plain_indices: Any, values: Any, size: Any = None, *, dtype: Any = None,
    layout: Any = None, device: Any = None, pin_memory: bool = False, requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Tensor:  # fmt: skip
    """Returns a sparse tensor in CSR, CSC, BSR or BSC layout, from its parts.

    Args:
        compressed_indices: (*batch, lines + 1): where each row (CSR, BSR) or column (CSC, BSC) begins.
        plain_indices: (*batch, n): the column, or row, of each element or block.
        values: (*batch, n, *block, *dense dims), with a block for BSR and BSC only.
        size: The shape, (*batch, rows, columns, *dense dims); by default just large enough.
        layout: `torch.sparse_csr`, `sparse_csc`, `sparse_bsr` or `sparse_bsc`.
        check_invariants: Whether the order within rows is checked; what kernels rely on always is.

    Raises:
        RuntimeError: If the parts do not fit each other.

    >>> torch.sparse_compressed_tensor([0, 1, 2], [1, 0], [3.0, 4.0], (2, 2), layout=torch.sparse_csr).to_dense()
    tensor([[0., 3.],
            [4., 0.]])
    """
    arguments.layouts("sparse_compressed_tensor", layout=layout)
    kind = COMPRESSED.get(layout)
    if kind is None:
        raise RuntimeError(f"sparse_compressed_tensor expected sparse compressed tensor layout but got {layout}")
    name = f"sparse_{layout.name.removeprefix('sparse_')}_tensor"
    dtype = arguments.kind(name, dtype)
    arguments.flags(name, pin_memory=pin_memory, requires_grad=requires_grad, check_invariants=check_invariants)
    compressed = _given(compressed_indices, dtypes.int64, name, "compressed indices")
    plain = _given(plain_indices, dtypes.int64, name, "plain indices")
    given = _given(values, None, name, "values")
    given = given if dtype is None else given.to(dtype)
    _on_cpu(name, device, compressed, plain, given)
    lines, places = _index_array(compressed), _index_array(plain)
    first, second = ("crow_indices", "col_indices") if kind.by_rows else ("ccol_indices", "row_indices")
    if lines.dtype != places.dtype:
        raise RuntimeError(
            f"{first} and {second} must have the same dtype, bot got {scalar_type(from_numpy_dtype(lines.dtype))} and "
            f"{scalar_type(from_numpy_dtype(places.dtype))}, respectively"
        )
    if lines.dtype.name not in ("int32", "int64"):
        raise RuntimeError(f"{first} and {second} must be an int32 or int64 type, but got: {lines.dtype.name}")
    shape = arguments.sizes(name, "size", size) if size is not None else _least_shape(kind, lines, places, given._array)
    checked = checks.on if check_invariants is None else bool(check_invariants)
    check_compressed(kind, lines, places, given._array, shape, in_order=checked)
    return _finished(given, kind(lines, places, given._array, shape), requires_grad, pin_memory)


def _least_shape(kind: Any, lines: np.ndarray, places: np.ndarray, values: np.ndarray) -> tuple[int, ...]:
    """The smallest shape that holds all elements."""
    if not lines.ndim or not lines.shape[-1]:
        return (0, 0)
    batch = lines.ndim - 1
    block = values.shape[batch + 1 : batch + 3] if kind.blocked else (1, 1)
    along, across = lines.shape[-1] - 1, int(places.max()) + 1 if places.size else 0
    rows, columns = (along, across) if kind.by_rows else (across, along)
    inner = values.shape[batch + (3 if kind.blocked else 1) :]
    return (*lines.shape[:-1], rows * block[0], columns * block[1], *inner)


def _must(truth: Any, rule: str) -> None:
    """Raises: RuntimeError unless a rule holds."""
    if not truth:
        raise RuntimeError(f"`{rule}` is not satisfied.")


def check_compressed(
    kind: Any, lines: np.ndarray, places: np.ndarray, values: np.ndarray, shape: tuple[int, ...], in_order: bool
) -> None:
    """Raises: RuntimeError unless the parts of a compressed array fit each other and the shape."""
    first, second = ("crow_indices", "col_indices") if kind.by_rows else ("ccol_indices", "row_indices")
    if lines.ndim < 1 or places.ndim < 1:
        raise RuntimeError(f"{first} must have dimensionality >= 1 but got {min(lines.ndim, places.ndim)}")
    if lines.ndim != places.ndim:
        raise RuntimeError(
            f"{first} and {second} dimensionalities must be equal but got {lines.ndim} and {places.ndim}, respectively"
        )
    batch, block_dim = lines.ndim - 1, 2 if kind.blocked else 0
    dense_dim = values.ndim - batch - block_dim - 1
    if dense_dim < 0:
        raise RuntimeError(
            f"values must have dimensionality > sum of batch and block dimensionalities (={batch} + {block_dim}) but "
            f"got {values.ndim}"
        )
    if len(shape) != batch + 2 + dense_dim:
        raise RuntimeError(
            f"tensor dimensionality must be sum of batch, base, and dense dimensionalities (={batch} + 2 + "
            f"{dense_dim}) but got {len(shape)}"
        )
    if not lines.shape[:-1] == places.shape[:-1] == values.shape[:batch] == shape[:batch]:
        raise RuntimeError(
            f"all batch dimensions of {first}, {second}, values and the tensor must be equal, but got "
            f"{list(lines.shape[:-1])}, {list(places.shape[:-1])}, {list(values.shape[:batch])} and "
            f"{list(shape[:batch])}"
        )
    block = values.shape[batch + 1 : batch + 3] if kind.blocked else (1, 1)
    for d in range(2):
        if not block[d] or shape[batch + d] % block[d]:
            raise RuntimeError(
                f"tensor shape[{batch + d}] (={shape[batch + d]}) must be divisible with blocksize[{d}] "
                f"(={block[d]}) as defined by values shape"
            )
    if values.shape[batch + 1 + block_dim :] != shape[batch + 2 :]:
        raise RuntimeError(
            f"the dense dimensions of values, {list(values.shape[batch + 1 + block_dim :])}, must be those of the "
            f"tensor, {list(shape[batch + 2 :])}"
        )
    rows, columns = shape[batch] // block[0], shape[batch + 1] // block[1]
    along, across = (rows, columns) if kind.by_rows else (columns, rows)
    what = "rows" if kind.by_rows else "columns"
    if lines.shape[-1] != along + 1:
        raise RuntimeError(
            f"{first}.shape[-1] must be equal to the number of {what} + 1 (={along + 1}), but got {lines.shape[-1]}"
        )
    count = values.shape[batch]
    if places.shape[-1] != count:
        raise RuntimeError(
            f"{second}.shape[-1] must be equal to nnz (={count}) as defined by values.shape[{batch}], but got "
            f"{places.shape[-1]}"
        )
    n, m = ("nrows", "ncols") if kind.by_rows else ("ncols", "nrows")
    steps = np.diff(lines, axis=-1)
    _must((lines[..., 0] == 0).all(), f"{first}[..., 0] == 0")
    _must((lines[..., -1] == count).all(), f"{first}[..., -1] == nnz")
    _must(
        ((steps >= 0) & (steps <= across)).all(),
        f"0 <= {first}[..., 1:] - {first}[..., :-1] <= {m}",
    )
    _must(not places.size or (places.min() >= 0 and places.max() < across), f"0 <= {second} < {m}")
    if in_order and count > 1:
        for place in np.ndindex(lines.shape[:-1]):
            follows = np.ones(count, bool)
            follows[lines[place][:-1][steps[place] > 0]] = False  # the first of its line
            rising = np.ones(count, bool)
            rising[1:] = places[place][1:] > places[place][:-1]
            _must(
                (rising | ~follows).all(),
                f"{second}[..., {first}[..., i - 1]:{first}[..., i]] for all i = 1, ..., {n} are sorted and distinct "
                "along the last dimension values",
            )


def sparse_csr_tensor(
    crow_indices: Any, col_indices: Any, values: Any, size: Any = None, *, dtype: Any = None, device: Any = None,
    pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None,
) -> Tensor:  # fmt: skip
    """Returns a sparse tensor in CSR layout: see `sparse_compressed_tensor`.

    >>> torch.sparse_csr_tensor([0, 1, 2], [1, 0], [3.0, 4.0]).to_dense()
    tensor([[0., 3.],
            [4., 0.]])
    """
    return sparse_compressed_tensor(
        crow_indices, col_indices, values, size, layout=layouts.sparse_csr, dtype=dtype, device=device,
        pin_memory=pin_memory, requires_grad=requires_grad, check_invariants=check_invariants,
    )  # fmt: skip


def sparse_csc_tensor(
    ccol_indices: Any, row_indices: Any, values: Any, size: Any = None, *, dtype: Any = None, device: Any = None,
    pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None,
) -> Tensor:  # fmt: skip
    """Returns a sparse tensor in CSC layout: see `sparse_compressed_tensor`.

    >>> torch.sparse_csc_tensor([0, 1, 2], [1, 0], [4.0, 3.0]).to_dense()
    tensor([[0., 3.],
            [4., 0.]])
    """
    return sparse_compressed_tensor(
        ccol_indices, row_indices, values, size, layout=layouts.sparse_csc, dtype=dtype, device=device,
        pin_memory=pin_memory, requires_grad=requires_grad, check_invariants=check_invariants,
    )  # fmt: skip


def sparse_bsr_tensor(
    crow_indices: Any, col_indices: Any, values: Any, size: Any = None, *, dtype: Any = None, device: Any = None,
    pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None,
) -> Tensor:  # fmt: skip
    """Returns a sparse tensor in BSR layout: see `sparse_compressed_tensor`.

    >>> torch.sparse_bsr_tensor([0, 1], [0], [[[0.0, 3.0], [4.0, 0.0]]]).to_dense()
    tensor([[0., 3.],
            [4., 0.]])
    """
    return sparse_compressed_tensor(
        crow_indices, col_indices, values, size, layout=layouts.sparse_bsr, dtype=dtype, device=device,
        pin_memory=pin_memory, requires_grad=requires_grad, check_invariants=check_invariants,
    )  # fmt: skip


def sparse_bsc_tensor(
    ccol_indices: Any, row_indices: Any, values: Any, size: Any = None, *, dtype: Any = None, device: Any = None,
    pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None,
) -> Tensor:  # fmt: skip
    """Returns a sparse tensor in BSC layout: see `sparse_compressed_tensor`.

    >>> torch.sparse_bsc_tensor([0, 1], [0], [[[0.0, 3.0], [4.0, 0.0]]]).to_dense()
    tensor([[0., 3.],
            [4., 0.]])
    """
    return sparse_compressed_tensor(
        ccol_indices, row_indices, values, size, layout=layouts.sparse_bsc, dtype=dtype, device=device,
        pin_memory=pin_memory, requires_grad=requires_grad, check_invariants=check_invariants,
    )  # fmt: skip


def legacy(*given: Any, dtype: Any) -> Tensor:
    """What `x.new(...)` and `torch.sparse.FloatTensor(...)` make: a COO tensor of indices and values, or of sizes."""
    if all(isinstance(n, int) for n in given):
        return sparse_coo_tensor(given or (0,), dtype=dtype)
    if len(given) == 1 and not isinstance(given[0], tuple):
        raise TypeError(
            f"new() received an invalid combination of arguments - got ({typename(given[0])}), expected indices and "
            "values, or a size"
        )
    return sparse_coo_tensor(*given, dtype=dtype)


LEGACY[layouts.sparse_coo] = legacy

# --- checks by themselves ------------------------------------------------------------------------------------------


@composite("function", name="_validate_sparse_coo_tensor_args")
def validate_coo(
    indices: Tensor, values: Tensor, size: Any, is_coalesced: Any = None, check_pinning: Any = None
) -> None:
    """Raises: RuntimeError unless these can be the parts of a COO tensor."""
    sparse_coo_tensor(indices, values, size, is_coalesced=is_coalesced, check_invariants=True)


@composite("function", name="_validate_sparse_compressed_tensor_args")
def validate_compressed(
    compressed_indices: Tensor, plain_indices: Tensor, values: Tensor, size: Any, layout: AnyLayout,
    check_pinning: Any = None,
) -> None:  # fmt: skip
    """Raises: RuntimeError unless these can be the parts of a tensor in a compressed layout."""
    sparse_compressed_tensor(
        compressed_indices, plain_indices, values, size, layout=layout, check_invariants=True
    )  # fmt: skip


def _validate(name: str) -> None:
    def validate(compressed: Tensor, plain: Tensor, values: Tensor, size: Any, check_pinning: Any = None) -> None:
        validate_compressed(compressed, plain, values, size, getattr(layouts, f"sparse_{name}"))

    validate.__name__ = validate.__qualname__ = f"_validate_sparse_{name}_tensor_args"
    validate.__doc__ = f"Raises: RuntimeError unless these can be the parts of a {name.upper()} tensor."
    composite("function")(validate)


for _name in ("csr", "csc", "bsr", "bsc"):
    _validate(_name)
