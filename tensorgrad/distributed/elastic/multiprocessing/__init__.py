"""Processes that are started and watched together; PyTorch's module of this name."""

from __future__ import annotations

from tensorgrad.distributed.elastic.multiprocessing.api import PContext, RunProcsResult, start_processes
from tensorgrad.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure, record
from tensorgrad.distributed.elastic.output import DefaultLogsSpecs, LogsSpecs, SignalException, Std, to_map

__all__ = ["ChildFailedError", "DefaultLogsSpecs", "LogsSpecs", "PContext", "ProcessFailure", "RunProcsResult",
           "SignalException", "Std", "record", "start_processes", "to_map"]  # fmt: skip
