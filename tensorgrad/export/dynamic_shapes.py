"""Which dimensions of the inputs of an exported program may have other sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from tensorgrad.export.errors import UserError
from tensorgrad.tensor import Tensor
from tensorgrad.utils import _pytree

__all__ = ["Constraint", "Dim", "ShapesCollection", "dims"]


@dataclass(frozen=True)
class _DimHint:
    """A dimension without a name: `Dim.AUTO`, `Dim.DYNAMIC` or `Dim.STATIC`, perhaps with bounds."""

    kind: str
    min: int | None = None
    max: int | None = None

    def __call__(self, min: int | None = None, max: int | None = None) -> _DimHint:
        """The same hint with bounds.

        >>> torch.export.Dim.DYNAMIC(min=2).min
        2
        """
        if self.kind == "STATIC":
            raise TypeError("Dim.STATIC has no bounds")
        return _DimHint(self.kind, min, max)

    def __repr__(self) -> str:
        return f"Dim.{self.kind}"


class Dim:
    """A dimension that may have other sizes than in the example.

    Dimensions with one name have one size. `2 * dim` and `dim + 1` are sizes that follow from it. Where no name is
    needed, use a hint: `Dim.AUTO` (dynamic if the program allows it), `Dim.DYNAMIC` or `Dim.STATIC`.

    Args:
        name: its name.
        min: the least size.
        max: the largest size.

    >>> batch = torch.export.Dim("batch", min=1, max=64)
    >>> batch.__name__, batch.max, 2 * batch + 1
    ('batch', 64, 2*batch + 1)
    """

    AUTO: ClassVar[_DimHint] = _DimHint("AUTO")
    DYNAMIC: ClassVar[_DimHint] = _DimHint("DYNAMIC")
    STATIC: ClassVar[_DimHint] = _DimHint("STATIC")

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        if not isinstance(name, str) or not name.isidentifier():
            raise AssertionError(f"Dim name must be a valid identifier, got {name!r}")
        if min is not None and max is not None and max <= min:
            raise AssertionError(f"Cannot create Dim with inconsistent min={min}, max={max}")
        self.__name__ = name
        self.min = 0 if min is None else min
        self.max = max

    # A size is `factor * root + shift`.
    factor, shift = 1, 0

    @property
    def root(self) -> Dim:
        """The dimension that this one follows from: itself."""
        return self

    def __mul__(self, other: int) -> _DerivedDim:
        return _derived(self, other, 0)

    __rmul__ = __mul__

    def __add__(self, other: int) -> _DerivedDim:
        return _derived(self, 1, other)

    __radd__ = __add__

    def __sub__(self, other: int) -> _DerivedDim:
        return _derived(self, 1, -other)

    def __repr__(self) -> str:
        bounds = [f"{name}={value}" for name, value in (("min", self.min or None), ("max", self.max)) if value]
        return f"Dim({', '.join([repr(self.__name__), *bounds])})"


class _DerivedDim(Dim):
    """A dimension whose size follows from another's: `2 * dim + 1`."""

    def __init__(self, root: Dim, factor: int, shift: int) -> None:
        self._root, self.factor, self.shift = root, factor, shift
        text = root.__name__ if factor == 1 else f"{factor}*{root.__name__}"
        self.__name__ = text + (f" + {shift}" if shift > 0 else f" - {-shift}" if shift else "")
        self.min = factor * root.min + shift
        self.max = None if root.max is None else factor * root.max + shift

    @property
    def root(self) -> Dim:
        """The dimension that this one follows from."""
        return self._root

    def __repr__(self) -> str:
        return self.__name__


def _derived(dim: Dim, factor: Any, shift: Any) -> _DerivedDim:
    for value in (factor, shift):
        if not isinstance(value, int) or isinstance(value, bool):
            raise NotImplementedError(
                f"Attempted to do arithmetic on {dim!r} with {value!r}, where an integer was expected. (Only "
                "increasing linear operations with integer coefficients are supported.)"
            )
    if factor <= 0:
        raise NotImplementedError(
            f"Attempted to multiply {dim!r} with {factor}, where a positive integer was expected."
        )
    return _DerivedDim(dim.root, dim.factor * factor, dim.shift * factor + shift)


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:
    """Returns several dimensions.

    >>> torch.export.dims("batch", "length", max=512)
    (Dim('batch', max=512), Dim('length', max=512))
    """
    return tuple(Dim(name, min=min, max=max) for name in names)


class ShapesCollection:
    """Dynamic shapes by tensor, in the place of a structure like that of the arguments.

    >>> x = torch.ones(2, 3)
    >>> shapes = torch.export.ShapesCollection()
    >>> shapes[x] = {0: torch.export.Dim("batch")}
    >>> shapes.dynamic_shapes(lambda x: x + 1, (x,))
    ({0: Dim('batch')},)
    """

    def __init__(self) -> None:
        self._shapes: dict[int, tuple[Any, Any]] = {}

    def __setitem__(self, t: Any, shape: Any) -> None:
        if id(t) in self._shapes and self._shapes[id(t)][1] != shape:
            raise AssertionError(f"Shape {self._shapes[id(t)][1]} of this tensor was given before; now it is {shape}")
        self._shapes[id(t)] = t, shape

    def __getitem__(self, t: Any) -> Any:
        return self._shapes[id(t)][1]

    def __len__(self) -> int:
        return len(self._shapes)

    def dynamic_shapes(self, m: Any, args: tuple, kwargs: dict[str, Any] | None = None) -> Any:
        """Returns the shapes in the structure of the arguments."""
        found = [self._shapes.get(id(leaf), (None, None))[1] for leaf in _pytree.tree_leaves((args, kwargs or {}))]
        _, spec = _pytree.tree_flatten((args, kwargs or {}))
        placed, named = _pytree.tree_unflatten(found, spec)
        return (*placed, *named.values())


# --- from the user's form to places in the inputs ---------------------------------------------------------------------


@dataclass
class Constraint:
    """A dynamic dimension of one input: its size is `factor * size of the root + shift`.

    Attributes:
        leaf: the number of the input.
        axis: the dimension of it.
        root: the name of the root.
        automatic: whether it may be made static if the program needs that.

    >>> from tensorgrad.export.dynamic_shapes import Constraint
    >>> Constraint(leaf=0, axis=1, root="batch").axis
    1
    """

    leaf: int
    axis: int
    root: str
    factor: int = 1
    shift: int = 0
    least: int = 0
    most: int | None = None
    automatic: bool = False
    named: bool = True


def constraints_of(dynamic_shapes: Any, names: list[str], values: list[Any], leaves: list[Any]) -> list[Constraint]:
    """The dynamic dimensions of the inputs.

    Args:
        dynamic_shapes: what the user gave: for each argument, by position or by name, a structure like the argument's.
        names: the arguments.
        values: their values.
        leaves: the inputs, in order.

    Raises:
        UserError: If the structure does not fit.
    """
    if dynamic_shapes is None:
        return []
    if isinstance(dynamic_shapes, dict):
        if set(dynamic_shapes) != set(names):
            raise UserError(
                "When `dynamic_shapes` is specified as a dict, its top-level keys must be the arg names "
                f"{names} of `inputs`, but here they are {list(dynamic_shapes)}. Alternatively, you could also ignore "
                "arg names entirely and specify `dynamic_shapes` as a list/tuple matching `inputs`."
            )
        pairs = [(name, value, dynamic_shapes[name]) for name, value in zip(names, values, strict=True)]
    elif isinstance(dynamic_shapes, list | tuple):
        if len(dynamic_shapes) != len(values):
            raise UserError(
                f"Expected `dynamic_shapes` to have one entry for each of the {len(values)} inputs {names}, but it has "
                f"{len(dynamic_shapes)}"
            )
        pairs = list(zip(names, values, dynamic_shapes, strict=True))
    else:
        raise UserError(
            f"Expected dynamic_shapes to be a dict, list or tuple with the structure of the inputs, but got "
            f"{type(dynamic_shapes).__name__}"
        )
    numbers: dict[int, int] = {}
    for i, leaf in enumerate(leaves):
        numbers.setdefault(id(leaf), i)
    found: list[Constraint] = []
    for name, value, spec in pairs:
        for tensor, shape, where in _paired(value, spec, name):
            found += _of_tensor(numbers[id(tensor)], tensor, shape, where)
    return found


def _paired(value: Any, spec: Any, where: str) -> Iterator[tuple[Tensor, Any, str]]:
    """The tensors in an argument, each with its shape's description."""
    if spec is None:
        return
    if isinstance(value, Tensor):
        yield value, spec, where
        return
    if _pytree.tree_is_leaf(value):
        raise UserError(f"`dynamic_shapes` describes {where}, which is not a tensor; None was expected")
    children = _children(value)
    if isinstance(spec, dict):
        parts = {str(key): part for key, part in spec.items()}
        if set(parts) != {key for key, _ in children}:
            raise UserError(
                f"`dynamic_shapes` has the keys {sorted(parts)} for {where}; it has {[k for k, _ in children]}"
            )
        specs = [parts[key] for key, _ in children]
    else:
        if not isinstance(spec, list | tuple) or len(spec) != len(children):
            raise UserError(
                f"Detected mismatch between the structure of `inputs` and `dynamic_shapes`: {where} has "
                f"{len(children)} elements, but `dynamic_shapes` has {spec!r}"
            )
        specs = list(spec)
    for (key, child), part in zip(children, specs, strict=True):
        yield from _paired(child, part, f"{where}[{key}]")


def _children(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [(str(key), child) for key, child in value.items()]
    row = _pytree.row_of(value)
    assert row is not None
    return [(str(i), child) for i, child in enumerate(row.flatten_fn(value)[0])]


def _of_tensor(leaf: int, tensor: Tensor, shape: Any, where: str) -> Iterator[Constraint]:
    if isinstance(shape, dict):
        entries = dict(shape)
    elif isinstance(shape, list | tuple):
        if len(shape) != tensor.ndim:
            raise UserError(
                f"Expected dynamic shape spec {shape} of {where} to have the same length as the actual tensor shape "
                f"{list(tensor.shape)} (expected {tensor.ndim}, but got {len(shape)} instead)"
            )
        entries = dict(enumerate(shape))
    else:
        raise UserError(f"`dynamic_shapes` of {where} has to be a dict, list or tuple, but got {shape!r}")
    for axis, dim in entries.items():
        if dim is None or (isinstance(dim, _DimHint) and dim.kind == "STATIC"):
            continue
        if not isinstance(axis, int) or not -tensor.ndim <= axis < tensor.ndim:
            raise UserError(f"{where} of shape {list(tensor.shape)} has no dimension {axis!r} to be dynamic")
        size = tensor.shape[axis]
        axis %= tensor.ndim
        if isinstance(dim, int) and not isinstance(dim, bool):
            if dim != size:
                raise UserError(f"Dimension {axis} of {where} is {size}, but `dynamic_shapes` says that it is {dim}")
        elif isinstance(dim, Dim):
            if (size - dim.shift) % dim.factor:
                raise UserError(f"Dimension {axis} of {where} is {size}, which is not of the form {dim.__name__}")
            root = (size - dim.shift) // dim.factor
            low, high = dim.root.min, dim.root.max
            if root < low or (high is not None and root > high):
                raise UserError(f"Dimension {axis} of {where} is {size}, outside of the bounds of {dim!r}")
            yield Constraint(leaf, axis, dim.root.__name__, dim.factor, dim.shift, low, high)
        elif isinstance(dim, _DimHint):
            yield Constraint(
                leaf, axis, f"{where}.size({axis})", 1, 0, dim.min or 0, dim.max, dim.kind == "AUTO", named=False
            )
        else:
            raise UserError(
                f"Unexpected {dim!r} for dimension {axis} of {where}: expected a Dim, a hint, an int or None"
            )
