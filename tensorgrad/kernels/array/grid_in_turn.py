"""The gradients of `grid_sample` in half precision, where each sum is rounded, in the order in which PyTorch adds.

Arguments are those of `_scatter` and `_slopes` (grid.py): gradients `g` (N, C, P) of points, the offsets of the taps,
and where the points are.
"""

from itertools import product

import numpy as np

VECTOR = 16  # points of an image in two dimensions that PyTorch takes at once: numbers of two bytes in 32


def scatter_in_turn(home, xp, buffer, g, offsets, located, mode, dims):
    """Adds the gradients at some points to the neighbors that were sampled: tap by tap for 16 points, and the next 16.

    In three dimensions one point is taken after the other. `home`: where the elements of a plane are that are repeated
    around it, or None.
    """
    index, weights, _, _ = located
    together = 1 if dims == 3 else VECTOR
    places, values = [], []
    for offset, tap in _in_order(offsets, mode, dims):
        place = index + offset
        places.append(place if home is None else place - place % len(home) + home[place % len(home)])
        values.append(np.broadcast_to(_weighted(g, weights, tap), g.shape))
    np.add.at(buffer, _in_turn(places, together), _in_turn(values, together))


def _in_turn(taps, together):
    """What the taps (each N, C, P) have for the first few points, tap by tap, then for the next ones."""
    array = np.stack(taps, -2)
    whole = array.shape[-1] - array.shape[-1] % together
    first = array[..., :whole].reshape(*array.shape[:-1], -1, together).swapaxes(-3, -2)
    lines = [part.reshape(*array.shape[:2], -1) for part in (first, array[..., whole:])]
    return np.concatenate(lines, -1)


def slopes_in_turn(xp, buffer, g, offsets, located, mode, dims):
    """Returns the gradients for some points, (N, P, dims): x first. One channel is added after the other."""
    index, weights, changes, slopes = located
    values = {tap: buffer[offset:].take(index) for offset, tap in _in_order(offsets, mode, dims)}
    parts = _CHANGES[mode, dims](values, g, weights, changes)  # of each dimension, x first, those to add up: (N, C, P)
    made = []
    for d, terms in enumerate(parts):
        total = np.zeros((len(index), index.shape[-1]), g.dtype)
        for c in range(g.shape[1]):
            for term in terms:
                total += term[:, c]
        made.append(total * slopes[dims - 1 - d][:, 0] if np.ndim(slopes[0]) else total * slopes[dims - 1 - d])
    return np.stack(made, -1)


def _in_order(offsets, mode, dims):
    """The taps with their offsets, in PyTorch's order: rows last, but for cubic weights, of which columns are last."""
    taps = zip(offsets, product(range({"nearest": 1, "bilinear": 2, "bicubic": 4}[mode]), repeat=dims))
    return sorted(taps, key=lambda each: each[1][::-1]) if mode == "bicubic" else taps


def _weighted(g, weights, tap):
    if weights[0][0] is None:
        return g
    x, *others = reversed([w[t] for w, t in zip(weights, tap)])
    if len(weights[0]) == 4:
        return g * x * others[0]
    for w in others:
        x = x * w
    return x * g


def _bilinear(v, g, weights, changes):
    (south, north), (east, west) = weights  # of what is above, below; left and right of a point
    across = ((v[0, 1] - v[0, 0]) * south + (v[1, 1] - v[1, 0]) * north) * g
    down = ((v[1, 0] - v[0, 0]) * east + (v[1, 1] - v[0, 1]) * west) * g
    return [across], [down]


def _trilinear(v, g, weights, changes):
    z, y, x = weights
    parts: tuple[list, list, list] = [], [], []
    for (k, j, i), value in v.items():
        for part, first, second, tap in (
            (parts[0], y[j], z[k], i), (parts[1], x[i], z[k], j), (parts[2], x[i], y[j], k)
        ):  # fmt: skip
            term = value * first * second * g
            part.append(term if tap else -term)
    return parts


def _bicubic(v, g, weights, changes):
    (y, x), (dy, dx) = weights, changes
    return (
        [value * g * dx[i] * y[j] for (j, i), value in v.items()],
        [value * g * dy[j] * x[i] for (j, i), value in v.items()],
    )


_CHANGES = {("bilinear", 2): _bilinear, ("bilinear", 3): _trilinear, ("bicubic", 2): _bicubic}
