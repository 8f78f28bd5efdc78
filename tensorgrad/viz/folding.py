"""A large graph made small: the ops of a module as one box."""

from __future__ import annotations

from dataclasses import replace

from tensorgrad.viz.graph import INPUT, LEAF, MODULE, OP, Graph, Link, Vertex

READABLE = 60  # boxes, beside those of parameters, that one still takes in


def fold(graph: Graph, levels: int | None) -> Graph:
    """The graph with the ops of every module drawn as one box, modules being told apart `levels` deep.

    With `levels=1` each module of the model is a box, with 2 each of these modules' modules, ...; 0 folds nothing;
    None folds graphs of more than 60 ops, as deep as stays under that. Parameters that only one box uses disappear
    into it. A module that is called again after something else ran gets another box.

    Raises: ValueError if `levels` is negative.
    """
    if levels is not None and levels < 0:
        raise ValueError(f"fold: expected None, 0 or a number of levels, got {levels}")
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
    """For each vertex the path of the module that it disappears into.

    That is the one `levels` deep; what runs in a module less deep, beside the modules inside, stays itself.
    """
    outer = {path[:at] for path in {v.scope or "" for v in graph.vertices} for at in _dots(path)}
    paths = [".".join((v.scope or "").split(".")[:levels]) for v in graph.vertices]
    return [p if p and (p.count(".") + 1 == levels or p not in outer) else None for p in paths]


def _dots(path: str) -> list[int]:
    return [i for i, c in enumerate(path) if c == "."]


def _grouped(graph: Graph, paths: list[str | None]) -> list[int]:
    """For each op the number of the box it goes into (-1 for leaves and inputs), such that no cycle forms.

    Ops come in the order of the graph. One joins the latest box of its module, unless something it needs was itself
    computed from that box: then a cycle would close, and it begins a new one.
    """
    before: list[list[int]] = [[] for _ in graph.vertices]
    for link in graph.links:
        before[link.target].append(link.source)
    groups = [-1] * len(graph.vertices)
    ancestors: list[int] = []  # of each box, as the bits of a number: the boxes it was computed from
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
    """Whether one of the sources was computed from the group."""
    return any(ancestors[source] >> group & 1 for source in sources)


def _merged(graph: Graph, groups: list[int], paths: list[str | None]) -> Graph:
    """The graph of the boxes, and of the leaves and inputs that more than one of them needs."""
    users: dict[int, set[int]] = {}
    fed: set[int] = set()  # boxes that get something from another box
    for link in graph.links:
        if groups[link.source] < 0:
            users.setdefault(link.source, set()).add(groups[link.target])
        elif groups[link.source] != groups[link.target]:
            fed.add(groups[link.target])
    members: dict[int, list[int]] = {}
    for i, group in enumerate(groups):
        if group >= 0:
            members.setdefault(group, []).append(i)
    folds = {g for g, its in members.items() if paths[its[0]] is not None}
    vertices: list[Vertex] = []
    place: dict[int, int] = {}  # where a vertex of the graph, or the box it went into, stands now
    inside: dict[int, list[int]] = {}  # leaves and inputs, of each box
    for i, vertex in enumerate(graph.vertices):
        if groups[i] < 0:
            box = next(iter(users[i])) if len(users.get(i, ())) == 1 else -1
            # What no module owns stays visible, but for constants of a module that has something else to work on.
            if box in folds and (vertex.scope is not None or (vertex.kind == INPUT and box in fed)):
                inside.setdefault(box, []).append(i)
                continue
            its = [i]
        else:
            its = members[groups[i]]
            if i != its[-1]:  # the box stands where its last op stood
                continue
            if groups[i] in folds:
                vertex = _box(graph, its, inside.get(groups[i], []), paths[i] or "")
        place.update((j, len(vertices)) for j in its)
        vertices.append(vertex)
    return replace(graph, vertices=vertices, links=_outer(graph, place, vertices), root=place[graph.root])


def _outer(graph: Graph, place: dict[int, int], vertices: list[Vertex]) -> list[Link]:
    """The links that lead from one box to another; between folded ones each value once."""
    links: dict[tuple, Link] = {}
    for link in graph.links:
        source, target = place.get(link.source), place[link.target]
        if source is None or source == target:
            continue
        link = link._replace(source=source, target=target)
        if vertices[source].kind == MODULE:
            link = link._replace(output=0)
        if vertices[target].kind == MODULE:
            link = link._replace(number=min(link.number, 0), name="")
        links.setdefault(tuple(link), link)
    return list(links.values())


def _box(graph: Graph, its: list[int], held: list[int], path: str) -> Vertex:
    """The vertex of a folded module."""
    ops = [graph.vertices[i] for i in its]
    leaves = [graph.vertices[i] for i in held if graph.vertices[i].kind == LEAF]
    own = ops[-1].module if ops[-1].scope == path else ""
    elements = sum(s.nbytes // s.itemsize for v in leaves for s in v.outputs)
    return Vertex(
        MODULE, path, ops[-1].outputs, node_name=ops[-1].node_name, scope=path.rpartition(".")[0],
        module=graph.classes.get(path, own), saved=[s for v in ops for s in v.saved], ops=len(ops),
        parameters=[v.name for v in leaves], elements=elements,
        arguments=ops[0].name if len(ops) == 1 else "",
    )  # fmt: skip
