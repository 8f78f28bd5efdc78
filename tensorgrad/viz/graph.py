"""The computation graph as plain data: what a picture of it, or a page about it, is made of.

`collect(tensor)` walks from a tensor back to the leaves and describes every node on the way. The result holds names,
shapes and numbers, no tensors, so a picture keeps nothing of the graph alive. The engine takes no notice: what is
known is what the nodes keep for backward, and, if the graph was made inside `viz.record()`, what that noted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tensorgrad import dtypes
from tensorgrad.autograd.function import FunctionCtx
from tensorgrad.autograd.graph import FREED, Node, Packed
from tensorgrad.autograd.views import CopySlices, edge_of
from tensorgrad.tensor import Tensor
from tensorgrad.viz.recording import noted
from tensorgrad.viz.scopes import Names, infer

OP, LEAF, INPUT, MODULE = "op", "leaf", "input", "module"


class Shape(NamedTuple):
    """What is known of a tensor without its values."""

    shape: tuple[int, ...]
    dtype: str
    itemsize: int

    @property
    def nbytes(self) -> int:
        """The bytes of a dense tensor of this shape."""
        size = self.itemsize
        for n in self.shape:
            size *= n
        return size

    def __str__(self) -> str:
        return f"{self.dtype} [{', '.join(map(str, self.shape))}]" if self.shape else f"{self.dtype} scalar"


class Saved(NamedTuple):
    """One value that a node keeps for its formulas: a tensor (`shape`), or something else, as text.

    `memory` numbers the storages that are kept for backward: who shares one has the same number. It is 0 for a leaf's,
    which is there anyway, and `held` is how many bytes the storage has.
    """

    name: str
    shape: Shape | None
    text: str = ""
    memory: int = 0
    held: int = 0


class Link(NamedTuple):
    """The value `output` of one vertex is the input number `number` of another."""

    source: int
    target: int
    number: int  # among the edges of the node; -1 for an input that gets no gradient
    output: int = 0
    name: str = ""  # of the op's parameter


@dataclass
class Vertex:
    """One box of the graph.

    `kind` is "op", "leaf" (a tensor that requires grad), "input" (one that does not) or "module" (ops folded into
    one); `name` the op, or the name of the tensor or module; `arguments` the op's other arguments, as far as known.
    """

    kind: str
    name: str
    outputs: list[Shape]
    node_name: str = ""
    scope: str | None = None  # the module that it ran in, as a path; "" is the outermost
    module: str = ""  # the class of that module
    saved: list[Saved] = field(default_factory=list)
    arguments: str = ""
    ops: int = 1  # how many ops were folded into this one
    parameters: list[str] = field(default_factory=list)  # leaves folded into it
    elements: int = 0  # and how many elements these have

    @property
    def saved_bytes(self) -> int:
        """The bytes of memory kept for the sake of this box: each storage once, those of leaves not at all."""
        return sum({s.memory: s.held for s in self.saved if s.memory}.values())


@dataclass
class Graph:
    """Vertices in the order in which they were computed, links between them, and totals.

    >>> import tensorgrad as torch
    >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> graph = collect((x * x).sum(), names={"x": x})
    >>> [v.name for v in graph.vertices], [(a.source, a.target, a.number) for a in graph.links]
    (['x', 'mul', 'sum'], [(0, 1, 0), (0, 1, 1), (1, 2, 0)])
    """

    vertices: list[Vertex]
    links: list[Link]
    root: int  # which vertex made the tensor, and which of its outputs that is
    root_output: int = 0
    classes: dict[str, str] = field(default_factory=dict)  # path of a module -> its class, as far as known

    @property
    def saved_bytes(self) -> int:
        """The bytes of memory kept for backward: each storage once, those of leaves not at all."""
        return sum({s.memory: s.held for v in self.vertices for s in v.saved if s.memory}.values())

    @property
    def ops(self) -> int:
        """How many nodes the graph has."""
        return sum(v.ops for v in self.vertices if v.kind in (OP, MODULE))


def collect(tensor: Tensor, module: Any = None, names: Mapping[str, Tensor] | None = None) -> Graph:
    """The graph behind a tensor.

    Args:
        tensor: where to start. Without a graph, the result is the tensor alone.
        module: the `nn.Module` that computed it: names its parameters and buffers, and says which ops ran in which
            of its modules as far as can be told from the parameters they use. (Exact for graphs made inside
            `viz.record(module)`.)
        names: names for other tensors.

    Raises: TypeError if it is given no tensor.
    """
    return trace(tensor, module, names)[0]


def trace(tensor: Tensor, module: Any = None, names: Mapping[str, Tensor] | None = None) -> tuple[Graph, list]:
    """The graph, and for each of its vertices the node, the leaf, or the saved value that it describes."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"expected a tensor with a graph, got {type(tensor).__name__}")
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
    root = walk.places[id(edge[0])]
    graph = Graph(walk.vertices, walk.links, root, edge[1], known.classes)
    infer(graph, known)
    return graph, walk.targets


def _nodes_behind(target) -> list[Node]:
    """All nodes that can be reached, the oldest first."""
    seen: dict[int, Node] = {}
    stack = [target]
    while stack:
        node = stack.pop()
        if id(node) not in seen and isinstance(node, Node):
            seen[id(node)] = node
            stack.extend(edge[0] for edge in node.edges if edge is not None)
    return sorted(seen.values(), key=lambda n: n.sequence_nr)


class _Walk:
    """Turns nodes, given in the order of their making, into vertices and links."""

    def __init__(self, names: Names):
        self.names = names
        self.vertices: list[Vertex] = []
        self.links: list[Link] = []
        self.targets: list = []  # what each vertex describes; holding them keeps the `id`s below unique
        self.places: dict[int, int] = {}
        self.memories: dict[int, int] = {}  # id of a storage -> its number

    def append(self, key: int, vertex: Vertex, target) -> int:
        """The vertex's place; `key` finds it again."""
        self.places[key] = len(self.vertices)
        self.vertices.append(vertex)
        self.targets.append(target)
        return self.places[key]

    def leaf(self, tensor: Tensor) -> int:
        """The place of a leaf."""
        if id(tensor) in self.places:
            return self.places[id(tensor)]
        vertex = Vertex(LEAF, self.names.of(tensor), [shape_of(tensor._array)])
        if tensor._memory is not None:
            self.memories[id(tensor._memory)] = 0
        if vertex.name in self.names.owners:
            vertex.scope = self.names.owners[vertex.name]
        return self.append(id(tensor), vertex, tensor)

    def input(self, saved: tuple) -> int:
        """The place of a tensor that requires no grad, known because it was saved."""
        array = saved[0]
        if id(array) in self.places:
            return self.places[id(array)]
        name = self.names.of_array(array)
        vertex = Vertex(INPUT, name, [shape_of(array)])
        if name in self.names.owners:
            vertex.scope = self.names.owners[name]
        return self.append(id(array), vertex, saved)

    def add(self, node: Node) -> None:
        """One node, after everything it was computed from."""
        made = noted(node)
        if made is not None:
            self.names.learn(made)
        sources = []
        for number, (name, edge) in enumerate(zip(edge_names(node), node.edges)):
            if edge is not None:
                place = self.places[id(edge[0])] if isinstance(edge[0], Node) else self.leaf(edge[0])
                sources.append((place, number, edge[1], name))
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
        self.links += [Link(place, here, number, output, name) for place, number, output, name in sources]

    def numbered(self, saved: Saved, raw) -> Saved:
        """The description of a saved value, with the number of its memory."""
        if saved.shape is None:
            return saved
        storage, held = (raw[1], raw[1].nbytes()) if raw.__class__ is tuple else (raw, saved.shape.nbytes)
        number = self.memories.setdefault(id(storage), len(self.memories) + 1)
        return saved._replace(memory=number, held=held)


# --- what a node knows -------------------------------------------------------------------------------------------


def dtype_name(dtype) -> str:
    """The name of a NumPy dtype among PyTorch's.

    >>> import numpy as np
    >>> dtype_name(np.dtype("float32"))
    'float32'
    """
    return dtypes.from_numpy_dtype(dtype).name


def shape_of(array) -> Shape:
    """Shape and dtype of an array."""
    return Shape(tuple(array.shape), dtype_name(array.dtype), array.dtype.itemsize)


def forward_name(node: Node) -> str:
    """The op that the node records."""
    if isinstance(node, FunctionCtx):
        return node.function.__name__
    if isinstance(node, CopySlices):
        inner = node.inner.op.name.strip("_") if isinstance(node.inner, Node) and hasattr(node.inner, "op") else "write"
        return f"{inner} through a view"
    return node.op.name.strip("_")


def differentiable(node: Node) -> int:
    """How many of the node's outputs gradients come from; the others are there for the formulas, or are indices."""
    several = not isinstance(node, FunctionCtx | CopySlices) and len(node.op.outputs) == len(node.outputs) > 1
    return node.op.differentiable_outputs if several else len(node.outputs)


def _position(node: Node, name: str) -> int:
    """Where among the op's arguments a parameter stands: pictures show them in that order."""
    if isinstance(node, FunctionCtx | CopySlices):
        return 0
    return next((i for i, p in enumerate(node.op.params) if p.name == name.partition("[")[0]), 0)


def edge_names(node: Node) -> list[str]:
    """For each edge of a node the parameter that it belongs to; "" where that is not known."""
    if isinstance(node, FunctionCtx | CopySlices):
        return [""] * len(node.edges)
    names: list[str] = []
    tensors = [p for p in node.op.params if p.name in node.op.wrt]
    spare = len(node.edges) - len(tensors)
    for p in tensors:
        names += [f"{p.name}[{i}]" for i in range(spare + 1)] if p.annotation == "tensors" else [p.name]
    return names if len(names) == len(node.edges) else [""] * len(node.edges)


def saved_values(node: Node) -> list[tuple[Saved, Any]]:
    """What the node keeps for its formulas, described and as it is."""
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
    """Tensors that went into the op without needing a gradient: (parameter, saved value)."""
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


def arguments(node: Node) -> str:
    """The op's arguments that are no tensors, unless they have their defaults: `dim=1`.

    Only what the formulas need is known.
    """
    if isinstance(node, FunctionCtx | CopySlices):
        return ""
    plain = {p.name: p.default for p in node.op.params if not p.is_tensor}
    given = [(n, v) for n, v in zip(node.op.kept, node.args) if n in plain and repr(v).replace("'", '"') != plain[n]]
    shown = [f"{name}={value!r}" for name, value in given]
    if node.saved is not FREED:
        numbers = (int, float, complex, bool)
        tensors = {p.name for p in node.op.params if p.is_tensor}
        shown += [f"{n}={v!r}" for n, v in zip(node.op.saved, node.saved) if n in tensors and isinstance(v, numbers)]
    return ", ".join(s for s in shown if len(s) <= 60)
