"""`torch.distributed.elastic.metrics`: numbers that programs publish, and where they go."""

from __future__ import annotations

from typing import Any

from tensorgrad.distributed.elastic.metrics.api import (
    ConsoleMetricHandler,
    MetricData,
    MetricHandler,
    MetricsConfig,
    NullMetricHandler,
    configure,
    get_elapsed_time_ms,
    getStream,
    prof,
    profile,
    publish_metric,
    put_metric,
)

__all__ = [
    "ConsoleMetricHandler", "MetricData", "MetricHandler", "MetricsConfig", "NullMetricHandler", "configure",
    "getStream", "get_elapsed_time_ms", "initialize_metrics", "prof", "profile", "publish_metric", "put_metric",
]  # fmt: skip


def initialize_metrics(cfg: Any = None) -> None:
    """Accepted; call `configure`."""
