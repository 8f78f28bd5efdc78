"""Where events go, by name. Programs add their own: `_log_handlers["mine"] = logging.FileHandler(...)`."""

from __future__ import annotations

import logging

__all__ = ["get_logging_handler"]

_log_handlers: dict[str, logging.Handler] = {
    "console": logging.StreamHandler(),
    "dynamic_rendezvous": logging.NullHandler(),
    "null": logging.NullHandler(),
}


def get_logging_handler(destination: str = "null") -> logging.Handler:
    """Returns the handler of this name. Raises: KeyError if there is none.

    >>> from tensorgrad.distributed.elastic.events import get_logging_handler
    >>> type(get_logging_handler()).__name__
    'NullHandler'
    """
    return _log_handlers[destination]
