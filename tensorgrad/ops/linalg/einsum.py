"""Products specified by dimensions: `einsum`, `tensordot`, `kron`, chains of matrices, distances.

All are composites: they permute, reshape, multiply and sum, so their derivatives follow from those ops.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from tensorgrad import dtypes
from tensorgrad.dispatch.kernel_errors import unsupported
from tensorgrad.dispatch.kinds import composite, op
from tensorgrad.dispatch.out import store_out
from tensorgrad.dtypes import scalar_type
from tensorgrad.errors import typename, wrap_dim, wrong_argument
from tensorgrad.kernels.array import matmul as matmul_kernels
from tensorgrad.ops.create import from_numpy
from tensorgrad.ops.linalg.matmul import linear, matmul, nt
from tensorgrad.ops.pointwise import conj
from tensorgrad.tensor import Tensor

# --- einsum: parsing the equation ----------------------------------------------------------------------------------

DOTS = "..."


def _labels(text: str, what: str) -> list[str]:
    """Returns the subscripts of one operand (or of the output), with `DOTS` for an ellipsis. Raises: RuntimeError."""
    labels, i = [], 0
    while i < len(text):
        c = text[i]
        if c == ".":
            if text[i : i + 3] != DOTS or DOTS in labels:
                problem = (
                    "that is not part of any ellipsis"
                    if DOTS not in labels
                    else "for which an ellipsis was already found"
                )
                raise RuntimeError(f"einsum(): found '.' for {what} {problem}")
            labels.append(DOTS)
            i += 3
            continue
        if not (c.isascii() and c.isalpha()):
            raise RuntimeError(
                f"einsum(): invalid subscript given at index {i} in the equation string, subscripts must be in [a-zA-Z]"
            )
        labels.append(c)
        i += 1
    return labels


def _letter(number: int) -> str:
    if not 0 <= number < 52:
        raise RuntimeError(f"einsum(): subscripts in sublist format must be within the range [0, 52), but got {number}")
    return chr(ord("A") + number) if number < 26 else chr(ord("a") + number - 26)


def _from_sublists(args):
    """Returns the operands and labels of `einsum(x, [0, 1], y, [1, 2], [0, 2])`."""
    pairs = len(args) // 2
    lists = [[DOTS if n is Ellipsis else _letter(n) for n in sublist] for sublist in args[1 : 2 * pairs : 2]]
    output = None
    if len(args) % 2:
        output = [DOTS if n is Ellipsis else _letter(n) for n in args[-1]]
    return list(args[0 : 2 * pairs : 2]), lists, output


@lru_cache(maxsize=256)
def _read(equation: str, shapes: tuple):
    """Parses an equation and returns the result of `_resolved`."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    parts = left.split(",")
    if len(parts) != len(shapes):
        fewer = "fewer" if len(shapes) < len(parts) else "more"
        raise RuntimeError(f"einsum(): {fewer} operands were provided than specified in the equation")
    lists = [_labels(part, f"operand {i}") for i, part in enumerate(parts)]
    return _resolved(shapes, lists, _labels(right, "the output") if arrow else None)


def _resolved(shapes: tuple, lists, output):
    """Returns the labels of the operands and of the output, with ellipses expanded, and the size of every label."""
    lists, dots = _spread_dots(shapes, lists)
    output = _output_labels(lists, output, dots)
    return lists, output, _check_sizes(shapes, lists)


def _spread_dots(shapes, lists) -> tuple[list, list]:
    """Replaces every ellipsis by one label per dimension it covers, counted from the right."""
    most, spread = 0, []
    for i, (shape, labels) in enumerate(zip(shapes, lists, strict=True)):
        named = len(labels) - (DOTS in labels)
        extra = len(shape) - named
        if DOTS not in labels and extra:
            raise RuntimeError(
                f"einsum(): the number of subscripts in the equation ({named}) does not match the number of dimensions "
                f"({len(shape)}) for operand {i} and no ellipsis was given"
            )
        if extra < 0:
            raise RuntimeError(
                f"einsum(): the number of subscripts in the equation ({named}) is more than the number of dimensions "
                f"({len(shape)}) for operand {i}"
            )
        if DOTS in labels:
            at = labels.index(DOTS)
            labels = [*labels[:at], *[f".{k}" for k in range(extra, 0, -1)], *labels[at + 1 :]]
            most = max(most, extra)
        spread.append(labels)
    return spread, [f".{k}" for k in range(most, 0, -1)]


def _output_labels(lists, output, dots) -> list[str]:
    seen = [label for labels in lists for label in labels]
    if output is None:  # the ellipsis, then labels that occur once, alphabetically
        return [*dots, *sorted(label for label in set(seen) if label[0] != "." and seen.count(label) == 1)]
    result = []
    for label in output:
        if label == DOTS:
            result += dots
            continue
        if output.count(label) > 1:
            raise RuntimeError(f"einsum(): output subscript {label} appears more than once in the output")
        if label not in seen:
            raise RuntimeError(
                f"einsum(): output subscript {label} does not appear in the equation for any input operand"
            )
        result.append(label)
    return result


def _check_sizes(shapes, lists) -> dict[str, int]:
    """Returns the size of every label. Raises: RuntimeError if sizes disagree."""
    sizes: dict[str, int] = {}
    for i, (shape, labels) in enumerate(zip(shapes, lists, strict=True)):
        own: dict[str, int] = {}
        for label, n in zip(labels, shape, strict=True):
            if own.setdefault(label, n) != n:
                raise RuntimeError(
                    f"einsum(): subscript {label} is repeated for operand {i} but the sizes don't match, {n} != "
                    f"{own[label]}"
                )
        for label, n in own.items():
            known = sizes.get(label, 1)
            if known != 1 and n not in (1, known):
                raise RuntimeError(
                    f"einsum(): subscript {label} has size {n} for operand {i} which does not broadcast with "
                    "previously "
                    f"seen size {known}"
                )
            sizes[label] = n if known == 1 else known
    return sizes


# --- einsum: contracting -------------------------------------------------------------------------------------------


def _without_repeats(x: Tensor, labels: list[str]):
    """Replaces repeated labels of one operand by a diagonal."""
    labels = list(labels)
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            x = x.diagonal(0, first, second).movedim(-1, first)
            del labels[second]
    return x, labels


def _without_ones(x: Tensor, labels: list[str], sizes: dict[str, int]):
    """Drops dimensions of size 1 that broadcast: another operand has them in full size."""
    dims = tuple(
        d for d, (label, n) in enumerate(zip(labels, x._array.shape, strict=True)) if n == 1 and sizes[label] != 1
    )
    return (x.squeeze(dims), [label for d, label in enumerate(labels) if d not in dims]) if dims else (x, labels)


def _summed(x: Tensor, labels: list[str], keep: set):
    """Sums over the labels that occur only in this operand and not in the output."""
    dims = tuple(d for d, label in enumerate(labels) if label not in keep)
    return (x.sum(dims), [label for label in labels if label in keep]) if dims else (x, labels)


def _ordered(x: Tensor, labels: list[str], wanted: list[str]) -> Tensor:
    return x if labels == wanted else x.permute([labels.index(label) for label in wanted])


def _shaped(x: Tensor, shape: tuple) -> Tensor:
    return x if x._array.shape == shape else x.reshape(shape)


def _contract(a: Tensor, left: list[str], b: Tensor, right: list[str], keep: set):
    """Multiplies two operands and sums over their common labels that are not in `keep`."""
    a, left = _summed(a, left, keep | set(right))
    b, right = _summed(b, right, keep | set(left))
    both = [label for label in left if label in right]
    batch, inner = [label for label in both if label in keep], [label for label in both if label not in keep]
    rows = [label for label in left if label not in both]
    columns = [label for label in right if label not in both]
    sizes = dict(zip((*left, *right), (*a._array.shape, *b._array.shape), strict=True))
    result = [*batch, *rows, *columns]
    shape = [sizes[label] for label in result]
    if not inner or (batch and not rows and not columns):  # multiply elementwise, then sum the inner labels
        a = _ordered(a, left, [*batch, *rows, *inner])
        b = _ordered(b, right, [*batch, *columns, *inner])
        k = len(inner)
        a = a.reshape((*a._array.shape[: a.ndim - k], *[1] * len(columns), *a._array.shape[a.ndim - k :]))
        b = b.reshape((*[sizes[label] for label in batch], *[1] * len(rows), *b._array.shape[len(batch) :]))
        product = a * b
        return (product.sum(tuple(range(-k, 0)), dtype=product.dtype) if k else product), result
    a, b = _ordered(a, left, [*batch, *rows, *inner]), _ordered(b, right, [*batch, *inner, *columns])
    many, k = math.prod(sizes[label] for label in batch), math.prod(sizes[label] for label in inner)
    m, n = math.prod(sizes[label] for label in rows), math.prod(sizes[label] for label in columns)
    lead = (many,) if batch else ()
    product = matmul(_shaped(a, (*lead, m, k)), _shaped(b, (*lead, k, n)))
    return _shaped(product, tuple(shape)), result


def _path(operands, lists, output) -> list[tuple[int, ...]]:
    """Returns which operands to contract in each step, cheap ones first; each result is appended to the operands."""
    if len(operands) < 3:
        return [tuple(range(len(operands)))]
    number = {label: i for i, label in enumerate(dict.fromkeys(label for labels in lists for label in labels))}
    if len(number) > 52:
        return [(0, 1)] * (len(operands) - 1)
    arguments: list = []
    for x, labels in zip(operands, lists, strict=True):
        arguments += (np.broadcast_to(np.float32(0), x._array.shape), [number[label] for label in labels])
    return np.einsum_path(*arguments, [number[label] for label in output], optimize="greedy")[0][1:]


def _einsum(operands, lists, output, sizes) -> Tensor:
    pairs = [_without_repeats(x, labels) for x, labels in zip(operands, lists, strict=True)]
    if len(pairs) > 1:
        pairs = [_without_ones(x, labels, sizes) for x, labels in pairs]
    tensors, kept = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    for step in _path(tensors, kept, [label for label in output if any(label in labels for labels in kept)]):
        chosen = [pairs[i] for i in step]
        pairs = [p for i, p in enumerate(pairs) if i not in step]
        x, labels = chosen[0]
        for k, (y, right) in enumerate(chosen[1:], 2):
            others = (*pairs, *chosen[k:])
            keep = {*output, *(label for _, rest in others for label in rest)}
            x, labels = _contract(x, labels, y, right, keep)
        pairs.append((x, labels))
    x, labels = pairs[0]
    x, labels = _summed(x, labels, set(output))
    missing = [label for label in output if label not in labels]
    if missing:  # labels of size 1 that were dropped everywhere
        x, labels = x.reshape((*x._array.shape, *[1] * len(missing))), [*labels, *missing]
    return _ordered(x, labels, output)


@composite("function")
def einsum(*args) -> Tensor:
    """Computes the sum of products described by an equation such as `einsum("ij,jk->ik", a, b)`.

    Each dimension has a letter. Letters missing in the output are summed over, a letter repeated within an operand
    takes its diagonal, and `...` covers dimensions that broadcast. Without `->`, the output has the letters that occur
    once, in alphabetical order. The equivalent sublist format is `einsum(a, [0, 1], b, [1, 2], [0, 2])`.

    Raises:
        RuntimeError: If the equation does not fit the operands.

    >>> a, b = torch.ones(2, 3), torch.ones(3, 4)
    >>> torch.einsum("ij,jk->ik", a, b).shape
    torch.Size([2, 4])
    """
    if not args:
        raise ValueError(
            "einsum(): must specify the equation string and at least one operand, or at least one operand and its "
            "subscripts list"
        )
    if not isinstance(args[0], str | Tensor):
        raise TypeError(f"einsum(): argument 'equation' (position 1) must be str, not {typename(args[0])}")
    if isinstance(args[0], str):
        operands = args[1:]
        if len(operands) == 1 and isinstance(operands[0], list | tuple):
            operands = tuple(operands[0])
        if not operands:
            raise ValueError(
                "einsum(): must specify the equation string and at least one operand, or at least one operand and its "
                "subscripts list"
            )
        for i, operand in enumerate(operands):
            if not isinstance(operand, Tensor):
                raise TypeError(
                    f"einsum(): expected Tensor as element {i} in argument 'operands', but got {typename(operand)}"
                )
        return _einsum(operands, *_read(args[0], tuple(x._array.shape for x in operands)))
    operands, lists, output = _from_sublists(args)
    return _einsum(operands, *_resolved(tuple(x._array.shape for x in operands), lists, output))


# --- products over chosen dimensions -------------------------------------------------------------------------------


@composite("function")
def tensordot(a: Tensor, b: Tensor, dims=2, out=None) -> Tensor:
    """Contracts pairs of dimensions: the last `dims` of `a` with the first of `b`, or those in two lists.

    Raises:
        RuntimeError: If the sizes of a pair differ.

    >>> torch.tensordot(torch.ones(2, 3, 4), torch.ones(4, 3, 5), ([1, 2], [1, 0])).shape
    torch.Size([2, 5])
    """
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(a.dim(), b.dim()):
            raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
        left, right = list(range(-dims, 0)), list(range(dims))
    elif isinstance(dims, tuple | list):
        left, right = ([d] if isinstance(d, int) else list(d) for d in dims)
    else:
        raise RuntimeError(
            "tensordot expects dims to be int or tuple[list[int], list[int]] or list[list[int]] containing two lists, "
            f"but got dims={dims}"
        )
    if len(left) != len(right):
        raise RuntimeError("both dimension lists should have same length")
    if a.dtype is not b.dtype:
        raise RuntimeError(f"both inputs should have same dtype, but got {a.dtype} and {b.dtype}")
    for i, j in zip(left, right, strict=True):
        m, n = a._array.shape[wrap_dim(i, a.ndim)], b._array.shape[wrap_dim(j, b.ndim)]
        if m != n and 1 not in (m, n):
            raise RuntimeError(
                f"contracted dimensions need to match, but first has size {m} in dim {i} and second has size {n} in "
                f"dim {j}"
            )
        if m != n:  # one of them has size 1 and broadcasts: sum the other now
            a, b = (a, b.sum(j, True, dtype=b.dtype)) if m == 1 else (a.sum(i, True, dtype=a.dtype), b)
    left, right = [wrap_dim(d, a.ndim) for d in left], [wrap_dim(d, b.ndim) for d in right]
    rows = [d for d in range(a.ndim) if d not in left]
    columns = [d for d in range(b.ndim) if d not in right]
    k = math.prod(a._array.shape[d] for d in left)
    shape = [*(a._array.shape[d] for d in rows), *(b._array.shape[d] for d in columns)]
    m, n = math.prod(a._array.shape[d] for d in rows), math.prod(b._array.shape[d] for d in columns)
    result = matmul(a.permute([*rows, *left]).reshape((m, k)), b.permute([*right, *columns]).reshape((k, n)))
    result = result.reshape(shape)
    return store_out("tensordot", out, result)


@composite()
def kron(input: Tensor, other: Tensor, *, out=None) -> Tensor:
    """Computes the Kronecker product: every element of `input` times all of `other`, as blocks.

    >>> torch.kron(torch.tensor([1, 2]), torch.tensor([1, 10]))
    tensor([ 1, 10,  2, 20])
    """
    ndim = max(input.ndim, other.ndim)
    left = (1,) * (ndim - input.ndim) + input._array.shape
    right = (1,) * (ndim - other.ndim) + other._array.shape
    a = input.reshape([n for m in left for n in (m, 1)])
    b = other.reshape([n for m in right for n in (1, m)])
    result = (a * b).reshape([m * n for m, n in zip(left, right, strict=True)])
    return store_out("kron", out, result, (input, other))


def _chain_order(sizes: list[int]):
    """Finds where to split a chain of matrices of sizes[i] × sizes[i + 1] for the fewest multiplications.

    Source: Cormen et al., "Introduction to algorithms", matrix-chain multiplication by dynamic programming.
    """
    n = len(sizes) - 1
    cost = [[0] * n for _ in range(n)]
    split = [[0] * n for _ in range(n)]
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            choices = [cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1] for k in range(i, j)]
            best = min(range(len(choices)), key=choices.__getitem__)
            cost[i][j], split[i][j] = choices[best], i + best
    return split


def multi_dot(tensors, *, out=None) -> Tensor:
    """Multiplies two or more matrices in the cheapest order; the first and the last may be vectors.

    Raises:
        RuntimeError: If there are fewer than two tensors, or ranks or sizes do not fit.

    >>> torch.linalg.multi_dot([torch.ones(2, 3), torch.ones(3, 4), torch.ones(4)])
    tensor([12., 12.])
    """
    if not isinstance(tensors, tuple | list):
        raise wrong_argument(tensors, "tensors", "tuple of Tensors")
    tensors = list(tensors)
    n = len(tensors)
    if n < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {n}")
    for i, x in enumerate(tensors):
        end = i in (0, n - 1)
        if x.ndim not in ((1, 2) if end else (2,)):
            which = "first" if i == 0 else "last"
            what = f"the {which} tensor must be 1D or 2D" if end else f"tensor {i} must be 2D"
            raise RuntimeError(f"multi_dot(): {what} but got {x.ndim}D")
        if x.dtype is not tensors[0].dtype:
            raise RuntimeError(
                f"multi_dot(): all tensors must have be the same dtype but tensor 0 is {scalar_type(tensors[0])} and "
                f"tensor {i} {scalar_type(x)}"
            )
    shapes = [x._array.shape for x in tensors]
    row, column = tensors[0].ndim == 1, tensors[-1].ndim == 1
    matrices = [x.unsqueeze(0) if i == 0 and row else x.unsqueeze(1) if i == n - 1 and column else x
                for i, x in enumerate(tensors)]  # fmt: skip
    for i in range(n - 1):
        if matrices[i]._array.shape[1] != matrices[i + 1]._array.shape[0]:
            raise RuntimeError(
                f"multi_dot(): tensors {i} and {i + 1} with shapes {list(shapes[i])} and {list(shapes[i + 1])} "
                "cannot be "
                "multiplied"
            )
    sizes = [matrices[0]._array.shape[0], *(x._array.shape[1] for x in matrices)]
    split = _chain_order(sizes)

    def product(i, j):
        return matrices[i] if i == j else matmul(product(i, split[i][j]), product(split[i][j] + 1, j))

    result = product(0, n - 1)
    result = result.squeeze(0) if row else result
    result = result.squeeze(-1) if column else result
    return store_out("multi_dot", out, result)


@composite("function")
def chain_matmul(*matrices, out=None) -> Tensor:
    """Multiplies one or more matrices in the cheapest order (`torch.linalg.multi_dot` for several).

    >>> torch.chain_matmul(torch.ones(2, 3), torch.ones(3, 4), torch.ones(4, 1))
    tensor([[12.],
            [12.]])
    """
    if len(matrices) == 1 and isinstance(matrices[0], list | tuple):
        matrices = tuple(matrices[0])
    for x in matrices:
        if x.ndim != 2:
            raise RuntimeError(f"Tensor dimension is {x.ndim}, expected 2 instead.")
    if not matrices:
        raise RuntimeError("chain_matmul(): Expected one or more matrices")
    return matrices[0] if len(matrices) == 1 else multi_dot(matrices, out=out)


@composite("function", "functional")
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Computes the bilinear form x₁ᵀ W x₂ + b for every output, like `nn.Bilinear`.

    Shapes: input1 (*, in1), input2 (*, in2), weight (out, in1, in2), bias (out,); the result is (*, out).

    Raises:
        RuntimeError: If the sizes do not fit.

    >>> torch.nn.functional.bilinear(torch.ones(1, 2), torch.ones(1, 3), torch.ones(1, 2, 3))
    tensor([[6.]])
    """
    if input1.dim() != input2.dim():
        raise RuntimeError(f"bilinear(): input dimensions do not match: got {input1.dim()} and {input2.dim()}")
    one, two, w = input1._array.shape, input2._array.shape, weight._array.shape
    for d in range(len(one) - 1):
        if one[d] != two[d]:
            raise RuntimeError(f"bilinear(): input batch dimensions do not match at dim {d}: got {one[d]} and {two[d]}")
    for i, (shape, size) in enumerate(((one, w[1]), (two, w[2])), 1):
        if shape[-1] != size:
            raise RuntimeError(
                f"bilinear(): input{i} size does not match weight size: got {shape[-1]} but expected {size}"
            )
    if bias is not None and bias._array.shape != (w[0],):
        raise RuntimeError(
            f"bilinear(): bias size does not match weight size: got {bias._array.shape[0]} but expected {w[0]}"
        )
    pairs = (input1.unsqueeze(-1) * input2.unsqueeze(-2)).reshape((*one[:-1], w[1] * w[2]))
    return linear(pairs, weight.reshape((w[0], w[1] * w[2])), bias)


# --- geometry ------------------------------------------------------------------------------------------------------


def _cross_kernel(xp, a, b, dim):
    if a.dtype.kind == "b":
        unsupported("cross", a)
    a, b = xp.broadcast_arrays(a, b)
    dtype = xp.result_type(a, b)
    out = xp.empty(a.shape, dtype)
    a, b, c = (xp.moveaxis(x, dim, 0) for x in (a, b, out))
    with np.errstate(all="ignore"):
        for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
            xp.subtract(a[j] * b[k], a[k] * b[j], out=c[i, ...])
    return out


_cross = op(
    "cross_product(input, other, dim: int)",
    _cross_kernel,
    batch="broadcast",
    linear="input * other",
    input=lambda g, other, dim: _cross(conj(other), g, dim),
    other=lambda g, input, dim: _cross(g, conj(input), dim),
    shape=lambda a, b, dim: (matmul_kernels.broadcast_lead(a.shape, b.shape), a.dtype),
    backward_name="LinalgCrossBackward0",
    where=(),
)


def linalg_cross(input: Tensor, other: Tensor, *, dim: int = -1, out=None) -> Tensor:
    """Computes the cross product of three-dimensional vectors along `dim`.

    Raises:
        RuntimeError: If the size of `dim` is not 3.

    >>> torch.linalg.cross(torch.tensor([1.0, 0, 0]), torch.tensor([0.0, 1, 0]))
    tensor([0., 0., 1.])
    """
    if input.ndim != other.ndim:
        raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
    at = wrap_dim(dim, input.ndim)
    sizes = input._array.shape[at], other._array.shape[at]
    if sizes != (3, 3):
        raise RuntimeError(f"linalg.cross: inputs dimension {dim} must have length 3. Got {sizes[0]} and {sizes[1]}")
    if input.dtype is not other.dtype:
        common = dtypes.promote_types(input.dtype, other.dtype)
        input, other = input.to(common), other.to(common)
    matmul_kernels.broadcast_lead(input._array.shape, other._array.shape)
    result = _cross(input, other, at)
    return store_out("linalg_cross", out, result)


@composite()
def cross(input: Tensor, other: Tensor, dim: int | None = None, *, out=None) -> Tensor:
    """Computes the cross product of three-dimensional vectors along `dim`, by default the first dimension of size 3.

    >>> torch.cross(torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0.0, 1.0, 0.0]), dim=0)
    tensor([0., 0., 1.])
    """
    if dim is None:
        shape = matmul_kernels.broadcast_lead(input._array.shape, other._array.shape)
        dim = next((d for d, n in enumerate(shape) if n == 3), None)
        if dim is None:
            raise RuntimeError("no dimension of size 3 in input")
    return linalg_cross(input, other, dim=dim, out=out)


def _euclidean_kernel(xp, a, b, by_products):
    """Computes Euclidean distances between the rows of two stacks of matrices; `by_products`: |a|² + |b|² - 2 a·b."""
    wide = a.dtype
    if wide.itemsize == 2:
        if by_products:
            return _euclidean_of_half(xp, a, b)
        a, b = a.astype(np.float32), b.astype(np.float32)
    with np.errstate(all="ignore"):
        if by_products:
            square = (a * a).sum(-1)[..., :, None] + (b * b).sum(-1)[..., None, :]
            square -= 2 * xp.matmul(a, b.swapaxes(-1, -2))
            out = xp.sqrt(xp.maximum(square, 0))
        else:
            difference = a[..., :, None, :] - b[..., None, :, :]
            out = xp.sqrt((difference * difference).sum(-1))
    return out.astype(wide, copy=False)


def _euclidean_of_half(xp, a, b):
    """The same for many rows of two-byte floats: PyTorch rounds the squares, their sums and the product."""
    with np.errstate(all="ignore"):
        sums = [(x * x).astype(np.float32).sum(-1).astype(x.dtype).astype(np.float32) for x in (a, b)]
        square = xp.matmul(a.astype(np.float32) * np.float32(-2), b.astype(np.float32).swapaxes(-1, -2))
        square = (square + sums[0][..., :, None] + sums[1][..., None, :]).astype(a.dtype)
        return xp.sqrt(xp.maximum(square, a.dtype.type(0)))


def _slopes(g, out):
    return (g / out).masked_fill(out == 0, 0)


def _euclidean_first(g, first, second, out):
    r = _slopes(g, out)
    return r.sum(-1, True) * first - matmul(r, second)


def _euclidean_tangent(first_t, second_t, first, second, out):
    crossed = matmul(first_t, second.mT) + matmul(first, second_t.mT)
    along = (first * first_t).sum(-1, True) + (second * second_t).sum(-1).unsqueeze(-2) - crossed
    return _slopes(along, out)


_euclidean = op(
    "euclidean_distances(first, second, by_products: bool)",
    _euclidean_kernel,
    strides="rows",
    batch="broadcast",
    first=_euclidean_first,
    jvp=_euclidean_tangent,
    second=lambda g, first, second, out: _euclidean_first(g.transpose(-2, -1), second, first, out.transpose(-2, -1)),
    shape=lambda a, b, by_products: (
        (*matmul_kernels.broadcast_lead(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-2]),
        a.dtype,
    ),
    backward_name="CdistBackward0",
    where=(),
)


def _count_of_differences(xp, x):
    """How many elements of each row are not 0; nan if one of them is nan."""
    return xp.where(xp.isnan(x).any(-1), x.dtype.type(np.nan), (x != 0).sum(-1).astype(x.dtype))


# The number of elements in which two rows differ: the distance for p = 0, whose derivative is 0.
_differing = op(
    "differing(difference)",
    _count_of_differences,
    strides="rows",
    batch="leading",
    difference=lambda g, difference_shape: g.new_zeros(difference_shape),
    jacobian="zero",
    shape=lambda x: (x.shape[:-1], x.dtype),
    backward_name="CdistBackward0",
    where=(),
)


# Whether Euclidean distances are computed by products of matrices: always, never, or (None) for many rows.
_COMPUTE_MODES = {
    "use_mm_for_euclid_dist_if_necessary": None, "use_mm_for_euclid_dist": True, "donot_use_mm_for_euclid_dist": False,
}  # fmt: skip
_MANY_ROWS = 26


@composite("function")
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode="use_mm_for_euclid_dist_if_necessary") -> Tensor:
    """Computes the p-norm distances between the rows of `x1` (*, n, k) and those of `x2` (*, m, k): (*, n, m).

    Raises:
        RuntimeError: If `p` is negative, the ranks or row lengths do not fit, or the dtype is integral.

    >>> torch.cdist(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0]]))
    tensor([[5.]])
    """
    if compute_mode not in tuple(_COMPUTE_MODES):
        raise ValueError(f"{compute_mode} is not a valid value for compute_mode")
    for x, name in ((x1, "X1"), (x2, "X2")):
        if x.ndim < 2:
            raise RuntimeError(f"cdist only supports at least 2D tensors, {name} got: {x.ndim}D")
        if not x.dtype.is_floating_point:
            raise RuntimeError(f"cdist only supports floating-point dtypes, {name} got: {scalar_type(x)}")
    if x1._array.shape[-1] != x2._array.shape[-1]:
        raise RuntimeError(
            f"X1 and X2 must have the same number of columns. X1: {x1._array.shape[-1]} X2: {x2._array.shape[-1]}"
        )
    if p < 0:
        raise RuntimeError("cdist only supports non-negative p values")
    if x1.dtype is not x2.dtype:
        common = dtypes.promote_types(x1.dtype, x2.dtype)
        x1, x2 = x1.to(common), x2.to(common)
    if p == 2:
        by_products = _COMPUTE_MODES[compute_mode]
        many = x1._array.shape[-2] >= _MANY_ROWS or x2._array.shape[-2] >= _MANY_ROWS
        return _euclidean(x1, x2, many if by_products is None else by_products)
    difference = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    if p == math.inf:  # PyTorch's maximum passes over nan here, and only here
        difference = difference.masked_fill(difference.isnan(), 0)
    return difference.norm(p, -1) if p else _differing(difference)


@composite("function", "functional")
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """Computes the p-norm distances of all pairs of rows of an (n, k) matrix: a vector of n (n - 1) / 2.

    >>> torch.pdist(torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]]))
    tensor([5.0000, 1.0000, 4.2426])
    """
    if input.ndim != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {input.ndim}D")
    if not input.dtype.is_floating_point:
        raise RuntimeError("pdist only supports floating-point dtypes")
    if p < 0:
        raise RuntimeError("pdist only supports non-negative p values")
    n = input._array.shape[0]
    rows, columns = np.triu_indices(n, 1)
    pick = from_numpy
    first, second = (input.index_select(0, pick(index).to(input.device)) for index in (rows, columns))
    difference = first - second
    return difference.norm(p, 1) if p else _differing(difference)


__all__ = ["chain_matmul", "einsum", "linalg_cross", "multi_dot", "nt"]
