"""What both layouts of nested tensors share.

A nested tensor is an ordinary tensor, its `_values`, and a way to read it as pieces. The values have the place in the
graph, the memory and the device, so gradients, hooks and in-place writes need nothing of their own: what the engine
reads of a nested tensor, it reads of the values.

Functions and methods that are called with nested tensors come to `run`, which looks them up by name: those on
corresponding elements run on the values, others have a rule in a table of their layout, and the rest raise an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from types import FunctionType
from typing import Any, ClassVar, NoReturn

from tensorgrad import layouts
from tensorgrad.errors import NUMPY_NAMES
from tensorgrad.ops.nn.dropout import native_dropout
from tensorgrad.rows.kernel_tables import OPS
from tensorgrad.tensor import Tensor, tensors_in

__all__ = [
    "DIM_NAMES",
    "ELEMENTWISE",
    "OPERATORS",
    "Nested",
    "dropout",
    "indexing",
    "is_in_place",
    "mapped",
    "name_of",
    "nested_in",
    "requires_grad_",
    "run",
]

DIM_NAMES = {numpy: ours for ours, numpy in NUMPY_NAMES.items()}  # `axis` -> `dim`
_ARITHMETIC = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift", "div"]
_OTHERS = ["neg", "pos", "abs", "eq", "ne", "lt", "le", "gt", "ge", "invert"]
OPERATORS = frozenset((
    *(f"__{prefix}{name}__" for name in _ARITHMETIC for prefix in ("", "r", "i")),
    *(f"__{name}__" for name in _OTHERS),
))  # fmt: skip
# Functions on corresponding elements that are not rows of that kind.
ELEMENTWISE = frozenset((
    *(name for name, op in OPS.items() if op.kind == "pointwise"),
    "add", "sub", "subtract", "multiply", "mul", "div", "divide", "true_divide", "rsub", "pow",
    "float_power", "clamp", "clip", "clamp_max", "clamp_min", "frexp", "isneginf", "isposinf", "isfinite", "isreal",
    "ldexp", "mvlgamma", "nextafter", "positive", "square", "fix", "absolute", "negative", "masked_fill", "isclose",
    "relu", "relu6", "selu", "celu", "elu", "gelu", "silu", "mish", "hardtanh", "hardsigmoid", "hardswish", "softplus",
    "softsign", "tanhshrink", "hardshrink", "softshrink", "leaky_relu", "logsigmoid", "threshold", "rrelu",
    "float", "double", "half", "bfloat16", "int", "long", "short", "bool", "byte", "char", "type", "type_as", "cfloat",
    "cdouble", "fill", "zero", "sigmoid", "tanh", "not_equal", "greater", "greater_equal", "less", "less_equal",
    "arccos", "arcsin", "arctan", "arccosh", "arcsinh", "arctanh", "arctan2",
))  # fmt: skip


def nested_in(values: Any) -> Iterator[Any]:
    """The nested tensors in arguments, also those in lists."""
    return (tensor for tensor in tensors_in(values) if isinstance(tensor, Nested))


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """An argument or a result, with `change` applied to its tensors, also to those in lists and tuples."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        items = [mapped(item, change) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def dropout(func: Any, input: Any, p: float = 0.5, *args: Any, **kwargs: Any) -> Any:
    """The rule of both layouts for dropout. PyTorch's draws random numbers for p = 0 and p = 1 as well."""
    training, in_place = (*args, *(True, False)[len(args) :])[:2]
    training, in_place = kwargs.get("training", kwargs.get("train", training)), kwargs.get("inplace", in_place)
    if training and p in (0, 1) and not in_place:
        return input._with(native_dropout(input._values, p, True)[0])
    return input._with(func(input._values, p, *args, **kwargs))


def requires_grad_(func: Any, input: Any, requires_grad: bool = True) -> Any:
    """The rule of both layouts for this method: the values have the place in the graph."""
    input._values.requires_grad_(requires_grad)
    return input


def indexing(sliced: Callable[[Any, int, slice], Any]) -> Callable:
    """The rule of both layouts for `x[index]`: one index after the other, numbers, slices, `...` and None.

    A layout only brings `sliced(x, dim, item)`, a slice of a dimension.
    """

    def rule(func: Any, input: Any, index: Any) -> Any:
        items = list(index) if isinstance(index, tuple) else [index]
        if any(isinstance(item, Tensor | list) for item in items):
            raise NotImplementedError("indexing by tensors is not supported for nested tensors")
        given = sum(item is not None and item is not Ellipsis for item in items)
        if given > input.dim():
            raise IndexError(f"too many indices for tensor of dimension {input.dim()}")
        if Ellipsis in items:
            at = items.index(Ellipsis)
            items[at : at + 1] = [Ellipsis] * (input.dim() - given)  # dimensions that stay as they are
        made, dim = input, 0
        for item in items:
            if item is Ellipsis:
                dim += 1
            elif item is None:
                made, dim = made.unsqueeze(dim), dim + 1
            elif isinstance(item, slice):
                made = sliced(made, dim, item) if isinstance(made, Nested) else made[(slice(None),) * dim + (item,)]
                dim += 1
            else:
                made = made.select(dim, int(item))
        return made

    return rule


def is_in_place(name: str) -> bool:
    """Whether a function of this name changes its first argument."""
    if name in OPERATORS:
        return name[2] == "i" and name != "__invert__"
    return name.endswith("_") and not name.startswith("_")


@cache
def _names() -> dict[Any, str]:
    """What users call the methods whose own name is another."""

    def goes_by(name: str, method: Any) -> bool:
        own = getattr(method, "__name__", name)
        return isinstance(method, FunctionType) and own != name and getattr(Tensor, own, None) is not method

    return {method: name for name, method in vars(Tensor).items() if goes_by(name, method)}


def name_of(func: Any) -> str:
    """What users call a function or a method."""
    return _names().get(func) or str(getattr(func, "__name__", func))


def run(func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Runs a function on arguments of which some are nested tensors.

    Raises:
        NotImplementedError: nested tensors of this layout do not have the function, or there are both layouts.
    """
    name = name_of(func)
    kinds = {type(tensor): tensor for tensor in nested_in((*args, *kwargs.values()))}
    if len(kinds) > 1:
        raise NotImplementedError(f"{name}: nested tensors of both layouts, jagged and strided, in one call")
    cls = next(iter(kinds))
    if kwargs:
        kwargs = {DIM_NAMES.get(key, key): value for key, value in kwargs.items()}
        if kwargs.get("out", cls) is None:
            del kwargs["out"]
    rule = cls._rules.get(name)
    if rule is not None:
        return rule(func, *args, **kwargs)
    if name in OPERATORS or (name[:-1] if is_in_place(name) else name) in cls._elementwise_names:
        return cls._elementwise(func, args, kwargs)
    raise NotImplementedError(f"{name}: nested tensors with the {cls._layout} layout do not have it")


def _part(name: str) -> property:
    """A part of a tensor's state that is that of the values."""
    return property(lambda self: getattr(self._values, name), lambda self, value: setattr(self._values, name, value))


class Nested(Tensor):
    """A tensor that consists of pieces of different shapes.

    Subclasses say how the `_values` are read as pieces: `_with(values)` is a tensor of the same pieces with other
    values, `_pieces()` are these as ordinary tensors.
    """

    _values: Any
    _sizes: Any
    _size: Any
    _rules: ClassVar[dict[str, Callable]] = {}
    _elementwise_names: ClassVar[frozenset[str]] = frozenset()
    _layout: ClassVar[layouts.layout]

    is_nested = True

    _array, _memory, _requires_grad = _part("_array"), _part("_memory"), _part("_requires_grad")
    _grad, _hooks, _view = _part("_grad"), _part("_hooks"), _part("_view")

    @property
    def _edge(self) -> Any:
        """The values' place in the graph: of a leaf, the values themselves."""
        values = self._values
        return values._edge or ((values, 0) if values._requires_grad else None)

    @_edge.setter
    def _edge(self, edge: Any) -> None:
        self._values._edge = edge

    def __new__(cls, *_: Any, **__: Any) -> Any:
        """An empty object: its subclass's `__init__` gives it the values."""
        return object.__new__(cls)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})

    def _with(self, values: Tensor) -> Any:
        """The same pieces with other values."""
        raise NotImplementedError

    def _pieces(self) -> list[Tensor]:
        """The pieces, which share the memory of the values."""
        raise NotImplementedError

    def _map(self, function: Callable[[Tensor], Tensor]) -> Any:
        """What a function makes of each piece, of the same length, as a nested tensor."""
        raise NotImplementedError

    @classmethod
    def _elementwise(cls, func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Runs a function on corresponding elements."""
        raise NotImplementedError

    # --- geometry ---

    @property
    def layout(self) -> layouts.layout:
        """The layout: `torch.jagged` or `torch.strided`."""
        return self._layout

    ndim = property(lambda self: self.dim(), doc="The number of dimensions, that of the pieces among them.")

    def ndimension(self) -> int:
        """Returns the number of dimensions."""
        return self.dim()

    def nelement(self) -> int:
        """Returns the number of elements."""
        return self.numel()

    def __getitem__(self, index: Any) -> Any:
        return run(Tensor.__getitem__, (self, index), {})

    def storage_offset(self) -> int:
        """Returns where the values begin in their storage."""
        return self._values.storage_offset()

    def untyped_storage(self) -> Any:
        """Returns the storage of the values."""
        return self._values.untyped_storage()

    def is_shared(self) -> bool:
        """Returns whether other processes share the memory of the values."""
        return self._values.is_shared()

    @property
    def nbytes(self) -> int:
        """The size of all elements in bytes."""
        return self.numel() * self.element_size()

    mT = property(lambda self: self.transpose(-2, -1), doc="The last two dimensions swapped.")
    T = property(lambda self: self.permute(*range(self.dim())[::-1]), doc="Raises an error: the batch stays first.")

    # --- the graph ---

    requires_grad = property(
        lambda self: self._values.requires_grad,
        lambda self, value: setattr(self._values, "requires_grad", value),
        doc="Whether gradients flow to this tensor.",
    )
    grad_fn = property(lambda self: self._values.grad_fn, doc="The node that computed the values; None for a leaf.")
    is_leaf = property(lambda self: self._values.is_leaf, doc="Whether no op computed the values.")
    output_nr = property(lambda self: self._values.output_nr, doc="The index among the outputs of `grad_fn`.")

    @property
    def grad(self) -> Any:
        """The gradient accumulated by `backward`, nested like the tensor."""
        found = self._values.grad
        return None if found is None else self._with(found)

    @grad.setter
    def grad(self, value: Any) -> None:
        self._values.grad = value._values if isinstance(value, Nested) else value

    @grad.deleter
    def grad(self) -> None:
        self._values.grad = None

    @property
    def data(self) -> Any:
        """The same memory outside autograd."""
        return self._with(self._values.data)

    @data.setter
    def data(self, value: Any) -> None:
        self._values.data = value._values

    def detach(self) -> Any:
        """Returns the same memory outside the graph."""
        return self._with(self._values.detach())

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Sets in place whether gradients flow to this tensor; returns it."""
        self._values.requires_grad_(requires_grad)
        return self

    def backward(
        self, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False, inputs: Any = None
    ) -> None:
        """Adds the gradient of this tensor to `.grad` of every leaf it depends on.

        Args:
            gradient: the gradient of this tensor, a nested tensor of the same pieces.
            (Others as in `torch.autograd.backward`.)
        """
        Tensor.backward(self._values, gradient, retain_graph, create_graph, inputs)

    def register_hook(self, hook: Callable) -> Any:
        """Calls a function with the gradient, a nested tensor, when it is computed; what it returns replaces it."""

        def on_values(gradient: Tensor) -> Any:
            found = hook(self._with(gradient))
            return found._values if isinstance(found, Nested) else found

        return self._values.register_hook(on_values)

    def retain_grad(self) -> None:
        """Keeps the gradient in `.grad`, though this tensor is not a leaf."""
        self._values.retain_grad()

    # --- values ---

    def tolist(self) -> NoReturn:
        """Raises RuntimeError: the pieces have different shapes. Use `[piece.tolist() for piece in x.unbind()]`."""
        raise RuntimeError(f".tolist() is not supported for tensor subclasses, got {type(self).__name__}")

    def numpy(self, *, force: bool = False) -> NoReturn:
        """Raises RuntimeError: the pieces have different shapes. Use `[piece.numpy() for piece in x.unbind()]`."""
        raise RuntimeError(".numpy() is not supported for tensor subclasses.")

    def __deepcopy__(self, memo: dict) -> Any:
        known = memo.get(id(self))
        if known is None:
            import copy

            known = memo[id(self)] = self._with(copy.deepcopy(self._values, memo))
            known.__dict__.update(copy.deepcopy(self._attributes(), memo))
        return known

    def _attributes(self) -> dict[str, Any]:
        """What a program has set on the tensor."""
        return {name: value for name, value in self.__dict__.items() if name not in self._own}

    _own: ClassVar[frozenset[str]] = frozenset(("_values",))
