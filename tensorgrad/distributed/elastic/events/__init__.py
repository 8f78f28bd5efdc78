"""`torch.distributed.elastic.events`: what happens to a job, as lines of JSON for Python's logging."""

from __future__ import annotations

import logging
import os

from tensorgrad.distributed.elastic.events.api import Event, EventMetadataValue, EventSource, NodeState, RdzvEvent
from tensorgrad.distributed.elastic.events.handlers import get_logging_handler

__all__ = [
    "Event", "EventMetadataValue", "EventSource", "NodeState", "RdzvEvent", "get_logging_handler", "record",
    "record_rdzv_event",
]  # fmt: skip


def _logger(destination: str) -> logging.Logger:
    """The logger of a destination, whose messages go nowhere else."""
    logger = logging.getLogger(f"torchelastic-events-{destination}")
    if not logger.handlers:
        logger.setLevel(os.environ.get("LOGLEVEL", "INFO"))
        logger.propagate = False
        logger.addHandler(get_logging_handler(destination))
    return logger


def record(event: Event, destination: str = "null") -> None:
    """Writes an event.

    Args:
        event: the event.
        destination: "console", "null", or another name among the handlers (`events.handlers`).

    >>> from tensorgrad.distributed.elastic import events
    >>> events.record(events.Event("begin", events.EventSource.WORKER))
    """
    _logger(destination).info(event.serialize())


def record_rdzv_event(event: RdzvEvent) -> None:
    """Writes an event of a rendezvous: to nowhere, unless the handler "dynamic_rendezvous" is replaced."""
    _logger("dynamic_rendezvous").info(event.serialize())
