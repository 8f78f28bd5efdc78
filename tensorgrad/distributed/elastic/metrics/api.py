"""Metrics: a handler for each group of names, and functions that publish numbers."""

from __future__ import annotations

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

__all__ = [
    "ConsoleMetricHandler", "MetricData", "MetricHandler", "MetricStream", "MetricsConfig", "NullMetricHandler",
    "configure", "getStream", "get_elapsed_time_ms", "prof", "profile", "publish_metric", "put_metric",
]  # fmt: skip


class MetricData(NamedTuple):
    """A published number."""

    timestamp: float
    group_name: str
    name: str
    value: Any


class MetricsConfig:
    """Parameters for a handler of yours."""

    __slots__ = ("params",)

    def __init__(self, params: dict[str, str] | None = None) -> None:
        self.params = {} if params is None else params


class MetricHandler(ABC):
    """What receives numbers."""

    @abstractmethod
    def emit(self, metric_data: MetricData) -> None:
        """Takes a number."""


class ConsoleMetricHandler(MetricHandler):
    """Prints numbers."""

    def emit(self, metric_data: MetricData) -> None:
        """Prints a number."""
        print(f"[{metric_data.timestamp}][{metric_data.group_name}]: {metric_data.name}={metric_data.value}")


class NullMetricHandler(MetricHandler):
    """Forgets numbers."""

    def emit(self, metric_data: MetricData) -> None:
        """Does nothing."""


class MetricStream:
    """A group, and its handler."""

    def __init__(self, group_name: str, handler: MetricHandler) -> None:
        self.group_name, self.handler = group_name, handler

    def add_value(self, metric_name: str, metric_value: Any) -> None:
        """Publishes a number."""
        self.handler.emit(MetricData(time.time(), self.group_name, metric_name, metric_value))


_HANDLERS: dict[str | None, MetricHandler] = {None: NullMetricHandler()}  # by group; None: of all others


def configure(handler: MetricHandler, group: str | None = None) -> None:
    """Sets where the numbers of a group go; of all groups without a handler of their own if None.

    >>> from tensorgrad.distributed.elastic import metrics
    >>> metrics.configure(metrics.NullMetricHandler(), group="mine")
    >>> metrics.put_metric("steps", 3, "mine")
    """
    _HANDLERS[group] = handler


def getStream(group: str) -> MetricStream:
    """Returns the stream of a group."""
    return MetricStream(group, _HANDLERS.get(group, _HANDLERS[None]))


def put_metric(metric_name: str, metric_value: Any, metric_group: str = "torchelastic") -> None:
    """Publishes a number.

    >>> from tensorgrad.distributed.elastic.metrics import put_metric
    >>> put_metric("loss", 2)
    """
    getStream(metric_group).add_value(metric_name, metric_value)


def publish_metric(metric_group: str, metric_name: str, metric_value: Any) -> None:
    """The former form of `put_metric`."""
    warnings.warn(
        "Deprecated, use `put_metric(metric_group)(metric_name, metric_value)` instead", FutureWarning, stacklevel=2
    )
    put_metric(metric_name, metric_value, metric_group)


def get_elapsed_time_ms(start_time_in_seconds: float) -> int:
    """Returns the milliseconds since a time of `time.time()`."""
    return int((time.time() - start_time_in_seconds) * 1000)


def _measured(function: Callable[..., Any], name: str, group: Any) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        start = time.time()
        try:
            result = function(*args, **kwargs)
            put_metric(f"{name}.success", 1, group)
        except Exception:
            put_metric(f"{name}.failure", 1, group)
            raise
        finally:
            put_metric(f"{name}.duration.ms", get_elapsed_time_ms(start), group)
        return result

    return call


def prof(fn: Callable[..., Any] | None = None, group: str = "torchelastic") -> Any:
    """Decorates a function: each call publishes its duration, and whether it succeeded or failed.

    Args:
        fn: the function; a decorator is returned if None.
        group: the group of the numbers.

    >>> from tensorgrad.distributed.elastic import metrics
    >>> @metrics.prof
    ... def work():
    ...     return 3
    >>> work()
    3
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        name = function.__qualname__
        if "." not in name and function.__module__:
            name = f"{function.__module__.rpartition('.')[2]}.{name}"
        return _measured(function, name, group)

    return decorate(fn) if fn is not None else decorate


def profile(group: Any = None) -> Callable[..., Any]:
    """The former form of `prof`."""
    warnings.warn("Deprecated, use `@prof` instead", FutureWarning, stacklevel=2)
    return lambda function: _measured(function, function.__name__, group)
