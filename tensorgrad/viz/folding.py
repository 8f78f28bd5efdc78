"""Folds large graphs by drawing the ops of a module as one box."""

from __future__ import annotations

from dataclasses import replace

from tensorgrad.viz.graph import INPUT, LEAF, MODULE, OP, Graph, Link, Vertex

READABLE = 60  # boxes, not counting parameters, up to which a picture is easy to read


def fold(graph: Graph, levels: int | None) -> Graph:
    """Returns the graph with the ops of each module drawn as one box, showing modules up to `levels` deep.

    With `levels=1` each module of the model is a box; with 2, each submodule of these modules, and so on. 0 folds
    nothing. None folds graphs of more than 60 ops, with as many levels as stay within that number. Parameters used by
    only one box are folded into it. A module that is called again after something else ran gets another box.

    Raises: ValueError if `levels` is negative.
    """
    if levels is not None and levels < 0:
        raise ValueError(f"fold: expected None or a number of levels that is not negative, but got {levels}")
    if levels is None:
        if graph.ops <= READABLE:
            return graph
        deepest = max((v.scope.count(".") + 1 for v in graph.vertices if v.kind == OP and v.scope), default=0)
        for deep in range(deepest, 1, -1):
            folded = fold(graph, deep)
            if sum(v.kind in (OP, MODULE) for v in folded.vertices) <= READABLE:
                return folded
        levels = 1
    if not levels or all(v.scope is None for v in graph.vertices):
        return graph
    paths = _folded_into(graph, levels)
    return _merged(graph, _grouped(graph, paths), paths)


def _folded_into(graph: Graph, levels: int) -> list[str | None]:
    """Returns, for each vertex, the path of the module it is folded into, or None.

    That is the module `levels` deep; ops that run in a shallower module, next to its submodules, are not folded.
    """
    outer = {path[:at] for path in {v.scope or "" for v in graph.vertices} for at in _dots(path)}
    paths = [".".join((v.scope or "").split(".")[:levels]) for v in graph.vertices]
    return [p if p and (p.count(".") + 1 == levels or p not in outer) else None for p in paths]


def _dots(path: str) -> list[int]:
    return [i for i, c in enumerate(path) if c == "."]


def _grouped(graph: Graph, paths: list[str | None]) -> list[int]:
    """Assigns each op to a box, by number (-1 for leaves and inputs), without creating cycles.

    Ops come in the order of the graph. Each joins the latest box of its module, unless one of its inputs was computed
    from that box in another one: that would close a cycle, so the op starts a new box.
    """
    before: list[list[int]] = [[] for _ in graph.vertices]
    for link in graph.links:
        before[link.target].append(link.source)
    groups = [-1] * len(graph.vertices)
    ancestors: list[int] = []  # for each box, a bit mask of the boxes it was computed from
    latest: dict[str, int] = {}
    for i, vertex in enumerate(graph.vertices):
        if vertex.kind != OP:
            continue
        path = paths[i]
        sources = {groups[j] for j in before[i] if groups[j] >= 0}
        if path is None or path not in latest or _behind(sources - {latest[path]}, latest[path], ancestors):
            groups[i] = len(ancestors)
            ancestors.append(0)
            if path is not None:
                latest[path] = groups[i]
        else:
            groups[i] = latest[path]
        here = groups[i]
        new = 0
        for source in sources - {here}:
            new |= ancestors[source] | 1 << source
        if new & ~ancestors[here]:
            ancestors[here] |= new
            for other, bits in enumerate(ancestors):
                if bits >> here & 1:
                    ancestors[other] |= new
    return groups


def _behind(sources: set[int], group: int, ancestors: list[int]) -> bool:
    """Returns whether one of the sources was computed from the group."""
    return any(ancestors[source] >> group & 1 for source in sources)


def _merged(graph: Graph, groups: list[int], paths: list[str | None]) -> Graph:
    """Builds the graph of the boxes, with the leaves and inputs that are not folded into a single box."""
    users: dict[int, set[int]] = {}
    fed: set[int] = set()  # boxes with an input from another box
    for link in graph.links:
        if groups[link.source] < 0:
            users.setdefault(link.source, set()).add(groups[link.target])
        elif groups[link.source] != groups[link.target]:
            fed.add(groups[link.target])
    members: dict[int, list[int]] = {}
    for i, group in enumerate(groups):
        if group >= 0:
            members.setdefault(group, []).append(i)
    folds = {g for g, group in members.items() if paths[group[0]] is not None}
    vertices: list[Vertex] = []
    position: dict[int, int] = {}  # the new index of a vertex, or of the box it was folded into
    inside: dict[int, list[int]] = {}  # the leaves and inputs folded into each box
    for i, vertex in enumerate(graph.vertices):
        if groups[i] < 0:
            box = next(iter(users[i])) if len(users.get(i, ())) == 1 else -1
            # Tensors that no module owns stay visible, except for constants in a module with an input from another box.
            if box in folds and (vertex.scope is not None or (vertex.kind == INPUT and box in fed)):
                inside.setdefault(box, []).append(i)
                continue
            folded = [i]
        else:
            folded = members[groups[i]]
            if i != folded[-1]:  # the box takes the position of its last op
                continue
            if groups[i] in folds:
                vertex = _box(graph, folded, inside.get(groups[i], []), paths[i] or "")
        position.update((j, len(vertices)) for j in folded)
        vertices.append(vertex)
    return replace(graph, vertices=vertices, links=_outer(graph, position, vertices), root=position[graph.root])


def _outer(graph: Graph, position: dict[int, int], vertices: list[Vertex]) -> list[Link]:
    """Returns the links between different boxes; between folded boxes, each value only once."""
    links: dict[tuple, Link] = {}
    for link in graph.links:
        source, target = position.get(link.source), position[link.target]
        if source is None or source == target:
            continue
        link = link._replace(source=source, target=target)
        if vertices[source].kind == MODULE:
            link = link._replace(output=0)
        if vertices[target].kind == MODULE:
            link = link._replace(number=min(link.number, 0), name="")
        links.setdefault(tuple(link), link)
    return list(links.values())


def _box(graph: Graph, members: list[int], inside: list[int], path: str) -> Vertex:
    """Returns the vertex of a folded module, with its ops (`members`) and its leaves and inputs (`inside`)."""
    ops = [graph.vertices[i] for i in members]
    leaves = [graph.vertices[i] for i in inside if graph.vertices[i].kind == LEAF]
    own = ops[-1].module if ops[-1].scope == path else ""
    elements = sum(s.nbytes // s.itemsize for v in leaves for s in v.outputs)
    return Vertex(
        MODULE, path, ops[-1].outputs, node_name=ops[-1].node_name, scope=path.rpartition(".")[0],
        module=graph.classes.get(path, own), saved=[s for v in ops for s in v.saved], ops=len(ops),
        parameters=[v.name for v in leaves], elements=elements,
        arguments=ops[0].name if len(ops) == 1 else "",
    )  # fmt: skip
