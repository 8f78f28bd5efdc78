"""Names of tensors, and the modules that ops ran in.

Nothing in a graph says which module made a node, unless `viz.record(model)` noted it. But who uses a parameter runs in
the module that owns it; an op between two of those runs in the innermost module around both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tensorgrad.tensor import Tensor

if TYPE_CHECKING:
    from tensorgrad.viz.graph import Graph
    from tensorgrad.viz.recording import Made


class Names:
    """What tensors are called: as in `names`, as in the module, or by their own attribute `name`."""

    def __init__(self, module: Any = None, names: Mapping[str, Tensor] | None = None):
        self.given: dict[int, str] = {}
        self.arrays: dict[int, str] = {}  # by the `id` of the array: of a saved tensor that is all there is
        self.owners: dict[str, str] = {}  # name of a parameter or buffer -> path of its module
        self.classes: dict[str, str] = {}  # path of a module -> its class
        self.containers: set[str] = set()  # paths of modules that only hold others
        self.childless: set[str] = set()
        self.models: list = []  # those that recordings told of
        self.keep = (module, names)  # so that no `id` is given away
        if module is not None:
            self._module(module)
        for name, tensor in (names or {}).items():
            if not isinstance(tensor, Tensor):
                raise TypeError(f"names: expected a tensor for {name!r}, got {type(tensor).__name__}")
            self._called(tensor, name)

    def _called(self, tensor: Tensor, name: str) -> None:
        self.given[id(tensor)] = self.arrays[id(tensor._array)] = name

    def _module(self, module: Any) -> None:
        from tensorgrad import nn

        for path, part in module.named_modules():
            self.classes[path] = type(part).__name__
            if type(part) in (nn.Sequential, nn.ModuleList, nn.ModuleDict):
                self.containers.add(path)
            if not any(True for _ in part.children()):
                self.childless.add(path)
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            self._called(tensor, name)
            self.owners[name] = name.rpartition(".")[0]

    def learn(self, made: Made) -> None:
        """Takes over the names that a recording knows."""
        model = made.model
        if any(model is other for other in self.models):
            return
        self.models.append(model)
        self.classes = {**model.classes, **self.classes}
        for reference, name in model.owners:
            tensor = reference()
            if tensor is not None and id(tensor) not in self.given:
                self._called(tensor, name)
                self.owners.setdefault(name, name.rpartition(".")[0])

    def of(self, tensor: Tensor) -> str:
        """The name of a tensor; "" if it has none."""
        own = tensor.__dict__.get("name") or tensor.__dict__.get("_name")
        return self.given.get(id(tensor)) or (own if isinstance(own, str) else "")

    def of_array(self, array) -> str:
        """The name of the tensor with this array; "" if it has none."""
        return self.arrays.get(id(array), "")


def infer(graph: Graph, names: Names) -> None:
    """Fills in the scope of every vertex, where anything is known of modules at all."""
    vertices = graph.vertices
    before: list[list[int]] = [[] for _ in vertices]
    after: list[list[int]] = [[] for _ in vertices]
    for link in graph.links:
        before[link.target].append(link.source)
        after[link.source].append(link.target)
    if not any(v.scope is not None for v in vertices):
        return
    ops = [i for i, v in enumerate(vertices) if v.kind == "op"]
    for i in ops:  # whoever uses a parameter runs in its module
        if vertices[i].scope is None:
            owners = [vertices[j].scope for j in before[i] if vertices[j].kind != "op"]
            vertices[i].scope = max((o for o in owners if o is not None), key=len, default=None)
    later: list[str | None] = [v.scope for v in vertices]  # the module of what next uses a parameter
    for i in reversed(ops):
        if later[i] is None:
            later[i] = next((later[j] for j in sorted(after[i])), "")
    for i in ops:
        vertex = vertices[i]
        if vertex.scope is None:
            sources = [vertices[j].scope or "" for j in sorted(set(before[i])) if vertices[j].kind == "op"]
            vertex.scope = _between(sources[-1], later[i] or "", names) if sources else ""
            if len(sources) > 1:  # what joins results of a module's parts, as a residual connection does
                vertex.scope = max(vertex.scope, _joining(sources, names), key=len)
        vertex.module = vertex.module or names.classes.get(vertex.scope, "")


def _joining(scopes: list[str], names: Names) -> str:
    """The module of an op that takes results from all these modules."""
    path = scopes[-1]
    for scope in scopes:
        path = _between(path, scope, names)
    return path


def _between(first: str, last: str, names: Names) -> str:
    """The module of an op after something in module `first` and before something in `last`."""
    a, b = first.split("."), last.split(".")
    same = 0
    while same < min(len(a), len(b)) and a[same] == b[same]:
        same += 1
    path = ".".join(a[:same])
    while path in names.containers and same < len(a):  # which runs nothing itself: the op ends the part before
        inner = ".".join(a[: same + 1])
        if inner in names.childless:
            break
        path, same = inner, same + 1
    return path
