"""The graph: nodes and edges. What nodes save for the backward pass is in `saved_tensors.py`.

A recorded op creates a `Node`. An *edge* is the pair `(target, output_nr)`: the target is the node that computed the
value, or, for a leaf, the leaf tensor itself. Nodes only point backwards, to what they were computed from, so
there are no reference cycles: dropping the last tensor frees the graph by reference counting alone.
"""

from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from tensorgrad import dtypes
from tensorgrad.autograd.handles import RemovableHandle
from tensorgrad.dtypes import scalar_type
from tensorgrad.rows.switches import LOCAL
from tensorgrad.system.names_elsewhere import elsewhere
from tensorgrad.tensor import BEFORE_RESHAPE, VIEW, Tensor

next_sequence_nr = itertools.count().__next__

# What classes of nodes that users see have besides: `__getattr__` (node_attributes.py). The generic class, whose nodes
# are seen as others (`shown`), has none: of a class that does, Python reads every attribute the long way.
SEEN: dict[str, Any] = {}

FREED: Any = ("freed",)  # the value of `saved` once backward has used a node


class Node:
    """One recorded op, as returned by `tensor.grad_fn`.

    `edges[i]` is where the gradient of the i-th tensor input goes (None: nowhere); `saved` and `args` are the values
    that the op's formulas use; `outputs[i]` is `(shape, dtype, array class)` of the i-th result; `sequence_nr` orders
    the backward pass: later ops first.

    >>> x = torch.tensor(3.0, requires_grad=True)
    >>> node = (2 * x).exp().grad_fn
    >>> node.name(), node.next_functions[0][0].name()
    ('ExpBackward0', 'MulBackward0')
    """

    __slots__ = ("__dict__", "__weakref__", "args", "edges", "hooks", "op", "outputs", "saved", "sequence_nr")

    op: Any
    edges: tuple
    saved: Any
    args: tuple
    outputs: tuple
    sequence_nr: int
    hooks: NodeHooks | None
    tensor_arguments: Any = itertools.repeat(True)  # a custom function may have other arguments as well
    passed_on_fewer = False  # gradients than it has edges, when it last ran (capture/compiled_node.py)
    runs_always = False  # even if no gradient arrived; custom functions decide for themselves

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not hasattr(cls, "__getattr__"):
            cls.__getattr__ = lambda self, name: SEEN["__getattr__"](self, name)  # type: ignore[attr-defined]

    def apply(self, grads: list) -> tuple:
        """Returns the gradients of the inputs, given those of the outputs."""
        transforms = LOCAL.transforms
        return transforms[-1].gradients(self, grads) if transforms else self.op.compiled.backward(self, grads)

    def release(self) -> None:
        """Releases the saved values after the node was used."""
        if self.saved:
            self.saved = FREED

    def name(self) -> str:
        """Returns PyTorch's name of the node, such as `MulBackward0`."""
        return self.op.backward_name

    @property
    def next_functions(self) -> tuple:
        """`(node, output_nr)` for each tensor input; `(None, 0)` for those that need no gradient."""
        edges = list(itertools.compress(self.edges, self.tensor_arguments))
        ends = [e is None or (isinstance(e[0], Tensor) and e[0]._requires_grad is VIEW) for e in edges]
        return tuple((None, 0) if end else (shown(as_node(e[0])), e[1]) for e, end in zip(edges, ends, strict=True))

    @property
    def metadata(self) -> dict:
        """A dictionary for user data about this node."""
        return self.__dict__.setdefault("_metadata", {})

    def register_hook(self, hook):
        """Registers `hook(grad_inputs, grad_outputs)`, called after the node; a returned tuple replaces the former."""
        return RemovableHandle.add(hooks_of(self).after, hook)

    def register_prehook(self, hook):
        """Registers `hook(grad_outputs)`, called before the node runs; a returned tuple replaces them."""
        return RemovableHandle.add(hooks_of(self).before, hook)

    def __repr__(self) -> str:
        return f"<{self.name()} object at {id(self):#x}>"


class NodeHooks:
    """The hooks that users registered on a node, and on its output tensors."""

    __slots__ = ("after", "before", "on_output", "retained")

    def __init__(self):
        self.before: OrderedDict = OrderedDict()
        self.after: OrderedDict = OrderedDict()
        self.on_output: dict[int, OrderedDict] = {}  # output_nr -> tensor hooks
        self.retained: dict[int, Any] = {}  # output_nr -> weak reference to a tensor that retains its `.grad`


def hooks_of(node: Node) -> NodeHooks:
    """The node's hooks, created on first use."""
    if node.hooks is None:
        node.hooks = NodeHooks()
    return node.hooks


class LeafHooks:
    """The hooks that users registered on a leaf, its `AccumulateGrad` while it is referenced, and its former shapes."""

    __slots__ = ("accumulator", "after", "before", "former_shapes", "on_grad", "post_accumulate")

    def __init__(self):
        self.on_grad: OrderedDict = OrderedDict()
        self.post_accumulate: OrderedDict = OrderedDict()
        self.before: OrderedDict = OrderedDict()  # hooks on the AccumulateGrad node
        self.after: OrderedDict = OrderedDict()
        self.accumulator: Any = None  # weak reference
        self.former_shapes: list[tuple[int, tuple]] = []  # (the number of the first node after it, shape)


def leaf_hooks_of(tensor: Tensor) -> LeafHooks:
    """The leaf's hooks, created on first use."""
    if tensor._hooks is None:
        tensor._hooks = LeafHooks()
    return tensor._hooks


MOST_SHAPES = 100  # that are kept of a leaf: for still older nodes the oldest of them stands


@BEFORE_RESHAPE.append
def _keep_shape(leaf: Tensor) -> None:
    """Notes the shape that a leaf had for the ops that have used it so far: that of their gradients."""
    if leaf._requires_grad is True and leaf._edge is None:
        former = leaf_hooks_of(leaf).former_shapes
        former.append((next_sequence_nr(), leaf._array.shape))
        del former[:-MOST_SHAPES]


def shape_for(leaf: Tensor, node: Node | None) -> tuple:
    """The shape that a leaf had when a node used it; for the gradient that a backward pass starts with, its present.

    >>> from tensorgrad.autograd.graph import shape_for
    >>> leaf = torch.ones(2, requires_grad=True)
    >>> used = (leaf * 2).sum()
    >>> with torch.no_grad():
    ...     leaf = leaf.set_(torch.ones(3))
    >>> shape_for(leaf, used.grad_fn), shape_for(leaf, None)
    ((2,), (3,))
    """
    if leaf._hooks is not None and node is not None:
        for number, shape in leaf._hooks.former_shapes:
            if node.sequence_nr < number:
                return shape
    return leaf._array.shape


class AccumulateGrad(Node):
    """The end of an edge into a leaf, as users see it. The graph itself holds the leaf (see the module docstring)."""

    __slots__ = ("variable",)

    def __init__(self, variable: Tensor):
        self.variable = variable
        self.edges, self.saved, self.args, self.hooks = (), (), (), None
        self.outputs = ((variable._array.shape, variable._array.dtype, variable._array.__class__),)
        self.sequence_nr = 2**63 - 1  # PyTorch's value: leaves first

    def name(self) -> str:
        return "torch::autograd::AccumulateGrad"

    def register_hook(self, hook):
        """Registers `hook(grad_inputs, grad_outputs)`, called after the leaf's gradient was accumulated."""
        return RemovableHandle.add(leaf_hooks_of(self.variable).after, hook)

    def register_prehook(self, hook):
        """Registers `hook(grad_outputs)`, called before accumulation; a returned tuple replaces the gradient."""
        return RemovableHandle.add(leaf_hooks_of(self.variable).before, hook)

    def __repr__(self) -> str:
        return f"<AccumulateGrad object at {id(self):#x}>"


def as_node(target) -> Node:
    """The node at the end of an edge; for a leaf its `AccumulateGrad`, the same object as long as it is referenced."""
    if isinstance(target, Node):
        return target
    hooks = leaf_hooks_of(target)
    node = hooks.accumulator and hooks.accumulator()
    if node is None:
        node = AccumulateGrad(target)
        hooks.accumulator = weakref.ref(node)
    return node


_named_classes: dict[tuple[type, str], type] = {}


def shown(node: Node) -> Node:
    """Prepares a node for users: gives its class the node's name, which graph-drawing programs use.

    >>> type(torch.ones(2, requires_grad=True).exp().grad_fn).__name__
    'ExpBackward0'
    """
    cls = node.__class__
    if cls is Node:  # the generic class is shared by nodes with many names
        node.__class__ = class_named(cls, node.name())
    return node


def class_named(cls: type, name: str) -> type:
    """Returns the subclass with that name, created on first use.

    >>> from tensorgrad.autograd.graph import Node, class_named
    >>> class_named(Node, "ExpBackward0")
    <class 'tensorgrad.autograd.graph.ExpBackward0'>
    """
    if (cls, name) not in _named_classes:
        _named_classes[cls, name] = type(name, (cls,), {"__slots__": (), "__module__": __name__})
    return _named_classes[cls, name]


_ELSEWHERE = {
    "edges": ("GradientEdge", "get_gradient_edge"),
    "hooks": ("register_multi_grad_hook",),
    "saved_tensor_hooks": (
        "allow_mutation_on_saved_tensors", "disable_saved_tensors_hooks", "increment_version", "save_on_cpu",
        "saved_tensors_hooks",
    ),
}  # fmt: skip


if TYPE_CHECKING:
    from tensorgrad.autograd.edges import GradientEdge, get_gradient_edge  # noqa: F401
    from tensorgrad.autograd.hooks import register_multi_grad_hook  # noqa: F401
    from tensorgrad.autograd.saved_tensor_hooks import (  # noqa: F401
        allow_mutation_on_saved_tensors,
        disable_saved_tensors_hooks,
        increment_version,
        save_on_cpu,
        saved_tensors_hooks,
    )

# PyTorch has these names in this module; here their modules need the ops, which need this file.
elsewhere(__name__, {name: f"tensorgrad.autograd.{file}" for file, names in _ELSEWHERE.items() for name in names})


def legacy_type_name(array) -> str:
    """PyTorch's legacy name of a tensor type, which its messages still use: `torch.FloatTensor`."""
    return f"torch.{scalar_type(dtypes.from_numpy_dtype(array.dtype))}Tensor"
