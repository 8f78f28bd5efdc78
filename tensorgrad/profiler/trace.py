"""Events in the format of Chrome's trace viewer.

Source: "Trace Event Format", https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
"""

from __future__ import annotations

import gzip
import json
import os
from typing import Any

from tensorgrad.profiler.events import EventList


def write_chrome_trace(events: EventList, path: Any, notes: dict[str, Any]) -> None:
    """Writes the events to a file, compressed if its name ends with `.gz`. `notes` are added to the trace."""
    process = os.getpid()
    entries: list[dict] = [
        {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "ts": 0, "args": {"name": "python"}}
    ]
    for event in events:
        entries.append({
            "ph": "X", "cat": event.category, "name": event.name, "pid": process, "tid": event.thread,
            "ts": event.time_range.start, "dur": event.cpu_time_total,
            "args": {"External id": event.id, **({"Input Dims": event.input_shapes} if event.input_shapes else {})},
        })  # fmt: skip
    trace = {"schemaVersion": 1, "displayTimeUnit": "ms", **notes, "traceEvents": entries}
    path = os.fspath(path)
    if path.endswith(".gz"):
        with gzip.open(path, "wt", encoding="utf-8") as packed:
            json.dump(trace, packed)
    else:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(trace, file)
