"""The layout of a directed acyclic graph: places boxes and edges in layers, from top to bottom.

The steps are those of Sugiyama, Tagawa and Toda, "Methods for visual understanding of hierarchical system structures"
(IEEE Transactions on Systems, Man, and Cybernetics 11, 1981):

1. every box gets a *rank*, below all boxes that lead to it (`ranks`);
2. an edge across several ranks becomes a chain through invisible boxes, so that it has its own lane in each;
3. within a rank, boxes are ordered by the mean position of their neighbors, which reduces crossings (`order`);
4. boxes move towards their neighbors as far as the order and the gaps between boxes allow (`align`).

The layout is deterministic: the same graph always gives the same picture.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

Point = tuple[float, float]

GAP = 22.0  # between boxes of a rank
LANE = 14.0  # the width reserved for an edge that passes a rank
RISE = 34.0  # the minimum distance between ranks
SWEEPS = 12


class Placed(NamedTuple):
    """A layout: the upper left corners of the boxes, a list of points for each edge, and the total size.

    An edge starts at the bottom of its first box and ends at the top of its second. It is vertical within ranks, and
    its x changes only between two points in the free space between ranks.
    """

    boxes: list[Point]
    edges: list[list[Point]]
    width: float
    height: float


def layout(sizes: list[tuple[float, float]], edges: list[tuple[int, int]], values: list[int] | None = None) -> Placed:
    """Places boxes of the given (width, height) so that every edge (from, to) points down.

    Edges from one box with the same number in `values` carry the same value, and share a path as far as possible.

    Raises: ValueError if the edges form a cycle.

    >>> placed = layout([(40, 20), (60, 20)], [(0, 1)])
    >>> placed.boxes, placed.edges
    ([(10.0, 0.0), (0.0, 54.0)], [[(30.0, 20.0), (30.0, 54.0)]])
    """
    if not sizes:
        return Placed([], [], 0.0, 0.0)
    rank = ranks(len(sizes), edges)
    values = values or [0] * len(edges)
    chains, of_rank, widths = _with_lanes(sizes, edges, values, rank)
    segments = dict.fromkeys(pair for chain in chains for pair in pairwise(chain))
    before: list[list[int]] = [[] for _ in widths]
    after: list[list[int]] = [[] for _ in widths]
    for u, v in segments:
        before[v].append(u)
        after[u].append(v)
    rows = order(of_rank, before, after)
    centres = align(rows, widths, before, after, len(sizes))
    left = min(c - w / 2 for c, w in zip(centres, widths))
    centres = [c - left for c in centres]
    heights = [max((sizes[v][1] for v in row if v < len(sizes)), default=0.0) for row in rows]
    ports = _ports(chains, values, centres, sizes)
    tops = _tops(heights, rows, chains, ports, centres, rank)
    boxes = [(centres[v] - w / 2, tops[rank[v]] + (heights[rank[v]] - h) / 2) for v, (w, h) in enumerate(sizes)]
    paths = [_path(chain, start, end, boxes, sizes, centres, rank, tops, heights)
             for chain, (start, end) in zip(chains, ports)]  # fmt: skip
    width = max(c + w / 2 for c, w in zip(centres, widths))
    return Placed(boxes, paths, width, tops[-1] + heights[-1])


# --- ranks ---------------------------------------------------------------------------------------------------------


def topological(count: int, edges: list[tuple[int, int]]) -> list[int]:
    """Sorts the vertices so that every edge points forward.

    Raises: ValueError if the edges form a cycle.
    """
    waiting = [0] * count
    after: list[list[int]] = [[] for _ in range(count)]
    for u, v in edges:
        waiting[v] += 1
        after[u].append(v)
    done = [v for v in range(count) if not waiting[v]]
    for u in done:  # the list grows during the loop
        for v in after[u]:
            waiting[v] -= 1
            if not waiting[v]:
                done.append(v)
    if len(done) < count:
        raise ValueError("expected an acyclic graph, but the edges form a cycle")
    return done


def ranks(count: int, edges: list[tuple[int, int]]) -> list[int]:
    """Returns the rank of every vertex.

    Vertices are ranked as far down as possible, so that leaves are next to their first use, then moved up again where
    that shortens the edges.

    >>> ranks(4, [(0, 2), (1, 3), (2, 3)])
    [0, 1, 1, 2]
    """
    before: list[set[int]] = [set() for _ in range(count)]
    after: list[set[int]] = [set() for _ in range(count)]
    for u, v in edges:
        before[v].add(u)
        after[u].add(v)
    forward = topological(count, edges)
    depth = [0] * count  # the length of the longest path to a sink
    for u in reversed(forward):
        depth[u] = max((depth[v] + 1 for v in after[u]), default=0)
    deepest = max(depth, default=0)
    rank = [deepest - d for d in depth]
    for v in forward:
        if before[v] and len(before[v]) > len(after[v]):
            rank[v] = max(rank[u] for u in before[v]) + 1
    return rank


def _with_lanes(sizes, edges, values, rank):
    """Inserts invisible boxes into long edges. Returns the edges as chains, the vertices by rank, and all widths."""
    of_rank: list[list[int]] = [[] for _ in range(max(rank) + 1)]
    for v in range(len(sizes)):
        of_rank[rank[v]].append(v)
    widths = [w for w, _ in sizes]
    lanes: dict[tuple[int, int, int], int] = {}
    chains = []
    for (u, v), value in zip(edges, values):
        chain = [u]
        for r in range(rank[u] + 1, rank[v]):
            if (u, value, r) not in lanes:
                lanes[u, value, r] = len(widths)
                of_rank[r].append(len(widths))
                widths.append(LANE)
            chain.append(lanes[u, value, r])
        chains.append([*chain, v])
    return chains, of_rank, widths


# --- order ---------------------------------------------------------------------------------------------------------


def order(rows: list[list[int]], before: list[list[int]], after: list[list[int]]) -> list[list[int]]:
    """Orders each row so that few edges cross."""
    best = rows = _by_depth(rows, before)
    fewest = crossings(rows, after)
    for sweep in range(SWEEPS):
        rows = [list(row) for row in rows]
        down = sweep % 2 == 0
        neighbors = before if down else after
        position = {v: i for row in rows for i, v in enumerate(row)}
        for row in rows if down else reversed(rows):
            mean = {}
            for v in row:
                near = [position[u] for u in neighbors[v]]
                mean[v] = sum(near) / len(near) if near else position[v]
            row.sort(key=lambda v: (mean[v], position[v]))
            position.update((v, i) for i, v in enumerate(row))
        _swap(rows, before, after)
        now = crossings(rows, after)
        if now < fewest:
            best, fewest = [list(row) for row in rows], now
        if not fewest:
            break
    return best


def _by_depth(rows, before) -> list[list[int]]:
    """Returns an initial order from a walk upwards from the last row, which keeps related vertices together."""
    place: dict[int, int] = {}
    stack = [v for row in rows for v in reversed(row)]
    while stack:
        v = stack.pop()
        if v not in place:
            place[v] = len(place)
            stack.extend(u for u in reversed(before[v]) if u not in place)
    return [sorted(row, key=lambda v: place[v]) for row in rows]


def crossings(rows: list[list[int]], after: list[list[int]]) -> int:
    """Counts the pairs of edges that cross: inversions among the lower ends, using a binary indexed tree."""
    total = 0
    for upper, lower in pairwise(rows):
        place = {v: i for i, v in enumerate(lower)}
        ends = [p for u in upper for p in sorted(place[v] for v in after[u])]
        tree = [0] * (len(lower) + 1)
        for seen, end in enumerate(ends):
            total += seen
            i = end + 1
            while i:  # edges that end at or left of this one do not cross it
                total -= tree[i]
                i -= i & -i
            i = end + 1
            while i < len(tree):
                tree[i] += 1
                i += i & -i
    return total


def _swap(rows, before, after) -> None:
    """Swaps neighbors in a row where that reduces crossings."""
    place = {v: i for row in rows for i, v in enumerate(row)}
    for row in rows:
        for i in range(len(row) - 1):
            u, v = row[i], row[i + 1]
            cost = sum(_inverted(side[u], side[v], place) - _inverted(side[v], side[u], place)
                       for side in (before, after))  # fmt: skip
            if cost > 0:
                row[i], row[i + 1] = v, u
                place[u], place[v] = i + 1, i


def _inverted(left: list[int], right: list[int], place: dict[int, int]) -> int:
    return sum(place[a] > place[b] for a in left for b in right)


# --- coordinates ---------------------------------------------------------------------------------------------------


def align(rows, widths, before, after, real: int) -> list[float]:
    """Returns the centers of all boxes: near their neighbors' centers, in the order of the rows, without overlap."""
    centres = [0.0] * len(widths)
    for row in rows:
        x = 0.0
        for v in row:
            centres[v] = x + widths[v] / 2
            x += widths[v] + GAP
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            wanted, weights = [], []
            for v in row:
                near = (before[v] if down else after[v]) or (after[v] if down else before[v])
                pull = [1.0 if before[u] else 0.01 for u in near]  # keeps the main line straight, leaves next to it
                wanted.append(sum(p * centres[u] for p, u in zip(pull, near)) / sum(pull) if near else centres[v])
                # Long edges should be straight, the main line nearly so; leaves make room for both.
                weights.append(8.0 if v >= real else 4.0 if before[v] else 0.05)
            gaps = [(widths[u] + widths[v]) / 2 + GAP for u, v in pairwise(row)]
            for v, x in zip(row, nearest(wanted, weights, gaps)):
                centres[v] = x
    return centres


def nearest(wanted: list[float], weights: list[float], gaps: list[float]) -> list[float]:
    """Returns the positions nearest to `wanted` (weighted least squares) with at least `gaps[i]` between i and i + 1.

    After subtracting the gaps, the positions must not decrease. This is an isotonic regression, computed by pooling
    adjacent violators (Ayer and others, "An empirical distribution function for sampling with incomplete information",
    1955).

    >>> nearest([0.0, 0.0, 10.0], [1.0, 1.0, 1.0], [2.0, 2.0])
    [-1.0, 1.0, 10.0]
    """
    shifts = [0.0]
    for gap in gaps:
        shifts.append(shifts[-1] + gap)
    blocks: list[tuple[float, float, int]] = []  # (mean, weight, count)
    for position, weight, shift in zip(wanted, weights, shifts):
        mean, total, count = position - shift, weight, 1
        while blocks and blocks[-1][0] > mean:
            other, heavy, many = blocks.pop()
            mean = (mean * total + other * heavy) / (total + heavy)
            total, count = total + heavy, count + many
        blocks.append((mean, total, count))
    flat = [mean for mean, _, count in blocks for _ in range(count)]
    return [mean + shift for mean, shift in zip(flat, shifts)]


# --- edges ---------------------------------------------------------------------------------------------------------


def _ports(chains, values, centres, sizes) -> list[tuple[float, float]]:
    """Returns the x where each edge starts and ends on its boxes: side by side, in the order of the other ends."""
    ports = [[0.0, 0.0] for _ in chains]
    for end, inner in ((0, 1), (-1, -2)):
        at: dict[int, list[int]] = {}
        for e, chain in enumerate(chains):
            at.setdefault(chain[end], []).append(e)
        for box, members in at.items():
            groups: dict[Any, list[int]] = {}  # edges with the same path share their start, but each has its own end
            for e in members:
                key = (chains[e][inner], values[e]) if end == 0 else e
                groups.setdefault(key, []).append(e)
            ordered = sorted(groups.values(), key=lambda g: (centres[chains[g[0]][inner]], g[0]))
            step = min(sizes[box][0] / (len(ordered) + 1), 32.0)
            for i, group in enumerate(ordered):
                for e in group:
                    ports[e][end] = centres[box] + (i - (len(ordered) - 1) / 2) * step
    return [(start, end) for start, end in ports]


def _tops(heights, rows, chains, ports, centres, rank) -> list[float]:
    """Returns the top of every rank; ranks are farther apart where edges go far to the side."""
    reach = [0.0] * len(rows)
    real = len(rank)
    depth = {v: r for r, row in enumerate(rows) for v in row}
    for chain, (start, end) in zip(chains, ports):
        for u, v in pairwise(chain):
            a = start if u == chain[0] and u < real else centres[u]
            b = end if v == chain[-1] and v < real else centres[v]
            reach[depth[v]] = max(reach[depth[v]], abs(a - b))
    tops, y = [], 0.0
    for r, height in enumerate(heights):
        if r:
            y += RISE + min(reach[r] * 0.06, 46.0)
        tops.append(y)
        y += height
    return tops


def _path(chain, start, end, boxes, sizes, centres, rank, tops, heights) -> list[Point]:
    """Returns the points of an edge: down to the border of the rank, across the gap, down through the next rank, ..."""
    first, last = chain[0], chain[-1]
    r = rank[first]
    points = [(start, boxes[first][1] + sizes[first][1]), (start, tops[r] + heights[r])]
    for lane in chain[1:-1]:
        r += 1
        points += [(centres[lane], tops[r]), (centres[lane], tops[r] + heights[r])]
    points += [(end, tops[rank[last]]), (end, boxes[last][1])]
    return [p for i, p in enumerate(points) if not i or p != points[i - 1]]
