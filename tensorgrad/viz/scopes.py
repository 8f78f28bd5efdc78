"""The names of tensors, and the modules that ops ran in.

A graph does not contain the module of each node, unless `viz.record(model)` recorded it. But an op that uses a
parameter runs in the module that owns it, and an op between two of those runs in the innermost module around both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tensorgrad.tensor import Tensor

if TYPE_CHECKING:
    from tensorgrad.viz.graph import Graph
    from tensorgrad.viz.recording import Made


class Names:
    """Finds the names of tensors: from `names`, from the module, or from their own attribute `name`."""

    def __init__(self, module: Any = None, names: Mapping[str, Tensor] | None = None):
        self.given: dict[int, str] = {}
        self.arrays: dict[int, str] = {}  # by the `id` of the array, the only identity that saved tensors have
        self.owners: dict[str, str] = {}  # name of a parameter or buffer -> path of its module
        self.classes: dict[str, str] = {}  # path of a module -> its class
        self.containers: set[str] = set()  # paths of modules that only contain others
        self.childless: set[str] = set()
        self.models: list = []  # the models found in recordings
        self.keep = (module, names)  # keeps the tensors alive, so that no `id` is reused
        if module is not None:
            self._module(module)
        for name, tensor in (names or {}).items():
            if not isinstance(tensor, Tensor):
                raise TypeError(f"names: expected a tensor for {name!r}, but got {type(tensor).__name__}")
            self._add(tensor, name)

    def _add(self, tensor: Tensor, name: str) -> None:
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
            self._add(tensor, name)
            self.owners[name] = name.rpartition(".")[0]

    def learn(self, made: Made) -> None:
        """Adds the names from a recording."""
        model = made.model
        if any(model is other for other in self.models):
            return
        self.models.append(model)
        self.classes = {**model.classes, **self.classes}
        for reference, name in model.owners:
            tensor = reference()
            if tensor is not None and id(tensor) not in self.given:
                self._add(tensor, name)
                self.owners.setdefault(name, name.rpartition(".")[0])

    def of(self, tensor: Tensor) -> str:
        """Returns the name of a tensor; "" if it has none."""
        own = tensor.__dict__.get("name") or tensor.__dict__.get("_name")
        return self.given.get(id(tensor)) or (own if isinstance(own, str) else "")

    def of_array(self, array) -> str:
        """Returns the name of the tensor with this array; "" if it has none."""
        return self.arrays.get(id(array), "")


def infer(graph: Graph, names: Names) -> None:
    """Fills in the scope of every vertex, if anything is known about modules."""
    vertices = graph.vertices
    before: list[list[int]] = [[] for _ in vertices]
    after: list[list[int]] = [[] for _ in vertices]
    for link in graph.links:
        before[link.target].append(link.source)
        after[link.source].append(link.target)
    if not any(v.scope is not None for v in vertices):
        return
    ops = [i for i, v in enumerate(vertices) if v.kind == "op"]
    for i in ops:  # an op that uses a parameter runs in its module
        if vertices[i].scope is None:
            owners = [vertices[j].scope for j in before[i] if vertices[j].kind != "op"]
            vertices[i].scope = max((o for o in owners if o is not None), key=len, default=None)
    later: list[str | None] = [v.scope for v in vertices]  # the module of the next op that uses a parameter
    for i in reversed(ops):
        if later[i] is None:
            later[i] = next((later[j] for j in sorted(after[i])), "")
    for i in ops:
        vertex = vertices[i]
        if vertex.scope is None:
            sources = [vertices[j].scope or "" for j in sorted(set(before[i])) if vertices[j].kind == "op"]
            vertex.scope = _between(sources[-1], later[i] or "", names) if sources else ""
            if len(sources) > 1:  # an op that joins results of a module's parts, like a residual connection
                vertex.scope = max(vertex.scope, _joining(sources, names), key=len)
        vertex.module = vertex.module or names.classes.get(vertex.scope, "")


def _joining(scopes: list[str], names: Names) -> str:
    """Returns the module of an op that uses results from all these modules."""
    path = scopes[-1]
    for scope in scopes:
        path = _between(path, scope, names)
    return path


def _between(first: str, last: str, names: Names) -> str:
    """Returns the module of an op that follows an op in module `first` and precedes one in `last`."""
    a, b = first.split("."), last.split(".")
    same = 0
    while same < min(len(a), len(b)) and a[same] == b[same]:
        same += 1
    path = ".".join(a[:same])
    while path in names.containers and same < len(a):  # containers run no ops: this one ends the preceding part
        inner = ".".join(a[: same + 1])
        if inner in names.childless:
            break
        path, same = inner, same + 1
    return path
