"""A line search for a step length that satisfies the strong Wolfe conditions.

Nocedal and Wright, 2006, *Numerical Optimization*, algorithms 3.5 (bracketing) and 3.6 (zoom), with cubic
interpolation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

ENOUGH = 1e-4  # sufficient decrease, as a fraction of what the slope at the start predicts (c1)
FLAT = 0.9  # maximum remaining slope, as a fraction of the slope at the start (c2)
LEAST_GROWTH, MOST_GROWTH = 0.01, 10  # of the step length from one trial to the next
MARGIN = 0.1  # minimum distance of a trial from the ends of the interval, as a fraction of its length


class Point(NamedTuple):
    """A point on the line."""

    t: Any  # the step length
    loss: Any
    gradient: Any
    slope: Any  # the directional derivative


def search(
    evaluate: Callable[[Any], Point], start: Point, t: Any, short: Callable[[Any], Any], trials: int
) -> tuple[Point, int]:
    """Returns the best point found, and the number of evaluations of the loss.

    Args:
        evaluate: computes the point at a step length.
        start: the point at step length 0, where the slope is negative.
        t: the first step length to try.
        short: whether an interval of this length is too short to divide.
        trials: the maximum number of points to try after the first one.
    """
    point, before, tried = evaluate(t), start, 0
    while tried < trials:
        if _too_high(point, start) or (tried > 1 and point.loss >= before.loss):
            break
        if _flat_enough(point, start):
            return point, tried + 1
        if point.slope >= 0:
            break
        bounds = point.t + LEAST_GROWTH * (point.t - before.t), point.t * MOST_GROWTH
        before, point = point, evaluate(_interpolate(before, point, bounds))
        tried += 1
    else:
        return (start if start.loss <= point.loss else point), tried + 1
    return _close_in([before, point], evaluate, start, short, trials, tried)


def _close_in(
    ends: list[Point],
    evaluate: Callable[[Any], Point],
    start: Point,
    short: Callable[[Any], Any],
    trials: int,
    tried: int,
) -> tuple[Point, int]:
    """Searches an interval that contains an acceptable point; `ends[low]` is the better end so far."""
    low, slow = _lower(ends), False
    while tried < trials and not short(abs(ends[1].t - ends[0].t)):
        high = 1 - low
        t = _interpolate(ends[0], ends[1], None)
        left, right = min(ends[0].t, ends[1].t), max(ends[0].t, ends[1].t)
        margin = MARGIN * (right - left)
        if min(right - t, t - left) < margin:
            if slow or t >= right or t <= left:  # twice at the end, or beyond it
                t = right - margin if abs(t - right) < abs(t - left) else left + margin
                slow = False
            else:
                slow = True
        else:
            slow = False
        point = evaluate(t)
        tried += 1
        if _too_high(point, start) or point.loss >= ends[low].loss:
            ends[high] = point
            low = _lower(ends)
            continue
        done = _flat_enough(point, start)
        if not done and point.slope * (ends[high].t - ends[low].t) >= 0:
            ends[high] = ends[low]
        ends[low] = point
        if done:
            break
    return ends[low], tried + 1


def _too_high(point: Point, start: Point) -> bool:
    return bool(point.loss > start.loss + ENOUGH * point.t * start.slope)


def _flat_enough(point: Point, start: Point) -> bool:
    return bool(abs(point.slope) <= -FLAT * start.slope)


def _lower(ends: list[Point]) -> int:
    return 0 if ends[0].loss <= ends[1].loss else 1


def _interpolate(a: Point, b: Point, bounds: tuple[Any, Any] | None) -> Any:
    """Returns the minimum of the cubic through two points with their slopes, within `bounds` or between them."""
    if a.t > b.t:
        a, b = b, a
    least, most = (a.t, b.t) if bounds is None else bounds
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = d1**2 - a.slope * b.slope
    if not square >= 0:
        return (least + most) / 2.0
    d2 = square.sqrt()
    t = b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2))
    return min(max(t, least), most)
