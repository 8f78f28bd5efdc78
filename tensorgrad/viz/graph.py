"""The computation graph as plain data, for pictures and pages.

`collect(tensor)` walks from a tensor back to the leaves and describes every node on the way. The result has names,
shapes and numbers but no tensors, so a picture does not keep the graph alive. The engine is not involved: the
information comes from what the nodes keep for backward and, if the graph was made inside `viz.record()`, from the
recording.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tensorgrad import dtypes
from tensorgrad.autograd.function import FunctionCtx
from tensorgrad.autograd.graph import FREED, Node
from tensorgrad.autograd.saved_tensors import Packed
from tensorgrad.autograd.views import CopySlices, edge_of
from tensorgrad.tensor import Tensor
from tensorgrad.viz.recording import noted
from tensorgrad.viz.scopes import Names, infer

OP, LEAF, INPUT, MODULE = "op", "leaf", "input", "module"


class Shape(NamedTuple):
    """The shape and dtype of a tensor."""

    shape: tuple[int, ...]
    dtype: str
    itemsize: int

    @property
    def nbytes(self) -> int:
        """The size in bytes of a dense tensor of this shape."""
        size = self.itemsize
        for n in self.shape:
            size *= n
        return size

    def __str__(self) -> str:
        return f"{self.dtype} [{', '.join(map(str, self.shape))}]" if self.shape else f"{self.dtype} scalar"


class Saved(NamedTuple):
    """One value that a node keeps for its formulas: a tensor (`shape`), or another value as `text`.

    `memory` identifies the storage kept for backward: values that share a storage have the same number. It is 0 for the
    storage of a leaf, which exists anyway. `held` is the size of the storage in bytes.
    """

    name: str
    shape: Shape | None
    text: str = ""
    memory: int = 0
    held: int = 0


class Link(NamedTuple):
    """A link: output number `output` of one vertex is input number `number` of another."""

    source: int
    target: int
    number: int  # the index of the node's edge; -1 for an input that gets no gradient
    output: int = 0
    name: str = ""  # the name of the op's parameter


@dataclass
class Vertex:
    """One box of the graph.

    `kind` is "op", "leaf" (a tensor that requires grad), "input" (one that does not) or "module" (several ops folded
    into one box). `name` is the name of the op, tensor or module; `arguments` are the op's other arguments, as far as
    they are known.
    """

    kind: str
    name: str
    outputs: list[Shape]
    node_name: str = ""
    scope: str | None = None  # the path of the module it ran in; "" is the outermost
    module: str = ""  # the class of that module
    saved: list[Saved] = field(default_factory=list)
    arguments: str = ""
    ops: int = 1  # how many ops were folded into this one
    parameters: list[str] = field(default_factory=list)  # leaves folded into it
    elements: int = 0  # the number of elements of these leaves

    @property
    def saved_bytes(self) -> int:
        """The bytes of memory kept for this box, counting each storage once and excluding leaves."""
        return sum({s.memory: s.held for s in self.saved if s.memory}.values())


@dataclass
class Graph:
    """The vertices in the order of computation, the links between them, and totals.

    >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> graph = collect((x * x).sum(), names={"x": x})
    >>> [v.name for v in graph.vertices], [(a.source, a.target, a.number) for a in graph.links]
    (['x', 'mul', 'sum'], [(0, 1, 0), (0, 1, 1), (1, 2, 0)])
    """

    vertices: list[Vertex]
    links: list[Link]
    root: int  # the vertex that computed the tensor
    root_output: int = 0  # and the number of its output
    classes: dict[str, str] = field(default_factory=dict)  # path of a module -> its class, where known

    @property
    def saved_bytes(self) -> int:
        """The bytes of memory kept for backward, counting each storage once and excluding leaves."""
        return sum({s.memory: s.held for v in self.vertices for s in v.saved if s.memory}.values())

    @property
    def ops(self) -> int:
        """The number of nodes in the graph."""
        return sum(v.ops for v in self.vertices if v.kind in (OP, MODULE))


def collect(tensor: Tensor, module: Any = None, names: Mapping[str, Tensor] | None = None) -> Graph:
    """Returns the computation graph of a tensor as plain data.

    Args:
        tensor: the tensor to start from. If it has no graph, the result is the tensor alone.
        module: the `nn.Module` that computed it, which names its parameters and buffers. It also determines which ops
            ran in which module, as far as the parameters they use allow. (This is exact for graphs made inside
            `viz.record(module)`.)
        names: names for other tensors.

    Raises:
        TypeError: If `tensor` is not a tensor.
    """
    return trace(tensor, module, names)[0]


def trace(tensor: Tensor, module: Any = None, names: Mapping[str, Tensor] | None = None) -> tuple[Graph, list]:
    """Returns the graph and, for each vertex, the node, leaf or saved value that it describes."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"expected a tensor with a graph, but got {type(tensor).__name__}")
    edge = edge_of(tensor)
    known = Names(module, names)
    if edge is None:
        vertex = Vertex(INPUT, known.of(tensor) or "", [shape_of(tensor._array)])
        return Graph([vertex], [], 0), [tensor]
    walk = _Walk(known)
    for node in _nodes_behind(edge[0]):
        walk.add(node)
    if isinstance(edge[0], Tensor):
        walk.leaf(edge[0])
    root = walk.positions[id(edge[0])]
    graph = Graph(walk.vertices, walk.links, root, edge[1], known.classes)
    infer(graph, known)
    return graph, walk.targets


def _nodes_behind(target) -> list[Node]:
    """Returns all reachable nodes, oldest first."""
    seen: dict[int, Node] = {}
    stack = [target]
    while stack:
        node = stack.pop()
        if id(node) not in seen and isinstance(node, Node):
            seen[id(node)] = node
            stack.extend(edge[0] for edge in node.edges if edge is not None)
    return sorted(seen.values(), key=lambda n: n.sequence_nr)


class _Walk:
    """Turns nodes, given in the order of their creation, into vertices and links."""

    def __init__(self, names: Names):
        self.names = names
        self.vertices: list[Vertex] = []
        self.links: list[Link] = []
        self.targets: list = []  # what each vertex describes; these references also keep the `id`s below unique
        self.positions: dict[int, int] = {}
        self.memories: dict[int, int] = {}  # id of a storage -> its number

    def append(self, key: int, vertex: Vertex, target) -> int:
        """Adds a vertex under `key`. Returns its index."""
        self.positions[key] = len(self.vertices)
        self.vertices.append(vertex)
        self.targets.append(target)
        return self.positions[key]

    def leaf(self, tensor: Tensor) -> int:
        """Returns the index of a leaf, adding it if needed."""
        if id(tensor) in self.positions:
            return self.positions[id(tensor)]
        vertex = Vertex(LEAF, self.names.of(tensor), [shape_of(tensor._array)])
        if tensor._memory is not None:
            self.memories[id(tensor._memory)] = 0
        if vertex.name in self.names.owners:
            vertex.scope = self.names.owners[vertex.name]
        return self.append(id(tensor), vertex, tensor)

    def input(self, saved: tuple) -> int:
        """Returns the index of a saved tensor that does not require grad, adding it if needed."""
        array = saved[0]
        if id(array) in self.positions:
            return self.positions[id(array)]
        name = self.names.of_array(array)
        vertex = Vertex(INPUT, name, [shape_of(array)])
        if name in self.names.owners:
            vertex.scope = self.names.owners[name]
        return self.append(id(array), vertex, saved)

    def add(self, node: Node) -> None:
        """Adds a node, after everything it was computed from."""
        made = noted(node)
        if made is not None:
            self.names.learn(made)
        sources = []
        for number, (name, edge) in enumerate(zip(edge_names(node), node.edges)):
            if edge is not None:
                index = self.positions[id(edge[0])] if isinstance(edge[0], Node) else self.leaf(edge[0])
                sources.append((index, number, edge[1], name))
        for name, constant in constants(node, made):
            sources.append((self.input(constant), -1, 0, name))
        sources.sort(key=lambda source: _position(node, source[3]))
        outputs = [Shape(tuple(s), dtype_name(d), d.itemsize) for s, d, _ in node.outputs if s is not None]
        vertex = Vertex(OP, forward_name(node), outputs[: differentiable(node)], node.name())
        vertex.saved = [self.numbered(*saved) for saved in saved_values(node)]
        vertex.arguments = arguments(node)
        if made is not None:
            vertex.scope, vertex.module = made.scope, made.module
        here = self.append(id(node), vertex, node)
        self.links += [Link(index, here, number, output, name) for index, number, output, name in sources]

    def numbered(self, saved: Saved, raw) -> Saved:
        """Returns the description of a saved value, with the number of its storage."""
        if saved.shape is None:
            return saved
        storage, held = (raw[1], raw[1].nbytes()) if raw.__class__ is tuple else (raw, saved.shape.nbytes)
        number = self.memories.setdefault(id(storage), len(self.memories) + 1)
        return saved._replace(memory=number, held=held)


# --- the contents of a node --------------------------------------------------------------------------------------


def dtype_name(dtype) -> str:
    """Returns PyTorch's name for a NumPy dtype.

    >>> import numpy as np
    >>> dtype_name(np.dtype("float32"))
    'float32'
    """
    return dtypes.from_numpy_dtype(dtype).name


def shape_of(array) -> Shape:
    """Returns the shape and dtype of an array."""
    return Shape(tuple(array.shape), dtype_name(array.dtype), array.dtype.itemsize)


def forward_name(node: Node) -> str:
    """Returns the name of the op that a node records."""
    if isinstance(node, FunctionCtx):
        return node.function.__name__
    if isinstance(node, CopySlices):
        inner = node.inner.op.name if isinstance(node.inner, Node) and hasattr(node.inner, "op") else "write"
        return f"{inner} through a view"
    return node.op.name


def differentiable(node: Node) -> int:
    """Returns how many of a node's outputs are differentiable; the others are for the formulas, or are indices."""
    several = not isinstance(node, FunctionCtx | CopySlices) and len(node.op.outputs) == len(node.outputs) > 1
    return node.op.differentiable_outputs if several else len(node.outputs)


def _position(node: Node, name: str) -> int:
    """Returns the position of a parameter among the op's arguments, which is the order in pictures."""
    if isinstance(node, FunctionCtx | CopySlices):
        return 0
    return next((i for i, p in enumerate(node.op.params) if p.name == name.partition("[")[0]), 0)


def edge_names(node: Node) -> list[str]:
    """Returns, for each edge of a node, the parameter it belongs to; "" if that is unknown."""
    if isinstance(node, FunctionCtx | CopySlices):
        return [""] * len(node.edges)
    names: list[str] = []
    tensors = [p for p in node.op.params if p.name in node.op.wrt]
    spare = len(node.edges) - len(tensors)
    for p in tensors:
        names += [f"{p.name}[{i}]" for i in range(spare + 1)] if p.annotation == "tensors" else [p.name]
    return names if len(names) == len(node.edges) else [""] * len(node.edges)


def saved_values(node: Node) -> list[tuple[Saved, Any]]:
    """Returns the values that a node keeps for its formulas, each as a description and as the raw value."""
    if isinstance(node, CopySlices):
        return saved_values(node.inner) if isinstance(node.inner, Node) else []
    if node.saved is FREED:
        return [(Saved("(freed)", None, "used by a backward pass"), None)]
    names = [f"saved_tensors[{i}]" for i in range(len(node.saved))]
    if not isinstance(node, FunctionCtx):
        names = list(node.op.saved)
    found: list[tuple[Saved, Any]] = []
    for name, raw in zip(names, node.saved):
        values = raw if raw.__class__ is list else [raw]
        for i, value in enumerate(values):
            full = f"{name}[{i}]" if raw.__class__ is list else name
            if value is not None:
                found.append((_described(full, value), value))
    return found


def _described(name: str, value) -> Saved:
    if value.__class__ is tuple and len(value) == 3:
        return Saved(name, shape_of(value[0]))
    if isinstance(value, Packed):
        return Saved(name, None, "packed by a hook")
    if hasattr(value, "shape") and hasattr(value, "dtype") and value.shape != ():
        return Saved(name, shape_of(value))
    text = repr(value.item() if hasattr(value, "item") and getattr(value, "size", 0) == 1 else value)
    return Saved(name, None, text if len(text) <= 40 else text[:39] + "…")


def constants(node: Node, made) -> list[tuple[str, tuple]]:
    """Returns the op's tensor arguments that need no gradient, as (parameter, saved value)."""
    if made is not None and made.constants is not None:
        return made.constants
    if isinstance(node, FunctionCtx | CopySlices) or node.saved is FREED:
        return []
    wanting = {name for name, edge in zip(edge_names(node), node.edges) if edge is not None}
    tensors = {p.name for p in node.op.params if p.is_tensor}
    found = []
    for name, raw in zip(node.op.saved, node.saved):
        values = [(f"{name}[{i}]", v) for i, v in enumerate(raw)] if raw.__class__ is list else [(name, raw)]
        if name in tensors:
            found += [(n, v) for n, v in values if n not in wanting and v.__class__ is tuple]
    return found


def _index_text(index: tuple) -> str:
    """Returns an index as a program writes it: `[0]`, `[:, 1:]`."""

    def text(item) -> str:
        if isinstance(item, slice):
            ends = ":".join("" if end is None else str(end) for end in (item.start, item.stop))
            return ends if item.step in (None, 1) else f"{ends}:{item.step}"
        return "..." if item is Ellipsis else str(item)

    items = index[:-1] if len(index) > 1 and index[-1] is Ellipsis else index  # the last one changes nothing
    return f"[{', '.join(map(text, items))}]"


def _value_text(value) -> str:
    """A value as people write it: a long number with four digits.

    >>> _value_text(0.35355339059327373), _value_text((0.1, 2.0)), _value_text(1e-05)
    ('0.3536', '(0.1, 2.0)', '1e-05')
    """
    if value.__class__ is float:
        return min(repr(value), f"{value:.4g}", key=len) if len(repr(value)) > 6 else repr(value)
    if value.__class__ in (tuple, list):
        inside = ", ".join(map(_value_text, value)) + ("," if value.__class__ is tuple and len(value) == 1 else "")
        return f"({inside})" if value.__class__ is tuple else f"[{inside}]"
    return repr(value)


def arguments(node: Node) -> str:
    """Returns the op's non-tensor arguments that differ from their defaults: `dim=1`, or the index `[0]`.

    Only arguments that the formulas need are known.
    """
    if isinstance(node, FunctionCtx | CopySlices):
        return ""
    plain = {p.name: p.default for p in node.op.params if not p.is_tensor}
    given = [(n, v) for n, v in zip(node.op.kept, node.args) if n in plain and repr(v).replace("'", '"') != plain[n]]
    shown = [
        _index_text(value) if name == "index" and value.__class__ is tuple else f"{name}={_value_text(value)}"
        for name, value in given
    ]
    if node.saved is not FREED:
        numbers = (int, float, complex, bool)
        tensors = {p.name for p in node.op.params if p.is_tensor}
        shown += [
            f"{n}={_value_text(v)}"
            for n, v in zip(node.op.saved, node.saved)
            if n in tensors and isinstance(v, numbers)
        ]
    return ", ".join(s for s in shown if len(s) <= 60)
