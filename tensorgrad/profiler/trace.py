"""Events in the format of Chrome's trace viewer.

Source: "Trace Event Format", https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
"""

from __future__ import annotations

import gzip
import json
import os
import threading
from typing import TYPE_CHECKING, Any

from tensorgrad.profiler.spans import NODE, OP
from tensorgrad.serialization.archive import replacing
from tensorgrad.system.threads import NAMES

if TYPE_CHECKING:
    from tensorgrad.profiler.events import Event, EventList


def write_chrome_trace(events: EventList, path: Any, notes: dict[str, Any]) -> None:
    """Writes the events to a file, compressed if its name ends with `.gz`. `notes` are added to the trace.

    Arrows lead from each op to the step of the backward pass that belongs to it.
    """
    process = os.getpid()
    names = {thread.ident: thread.name for thread in threading.enumerate()} | NAMES
    entries: list[dict] = [_name("process_name", process, 0, "python")]
    for thread in dict.fromkeys(event.thread for event in events):
        entries.append(_name("thread_name", process, thread, f"thread {thread} ({names.get(thread, 'ended')})"))
    for event in events:
        entries.append({
            "ph": "X", "cat": event.category, "name": event.name, "pid": process, "tid": event.thread,
            "ts": event.time_range.start, "dur": event.cpu_time_total, "args": _details(event),
        })  # fmt: skip
    entries += _arrows(events, process)
    trace = {"schemaVersion": 1, "displayTimeUnit": "ms", **notes, "traceEvents": entries}
    path = os.fspath(path)
    with replacing(path) as file:
        content = json.dumps(trace).encode()
        file.write(gzip.compress(content) if path.endswith(".gz") else content)


def _name(what: str, process: int, thread: int, name: str) -> dict:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "ts": 0, "args": {"name": name}}


def _details(event: Event) -> dict[str, Any]:
    """Returns the details that the viewer shows for a selected event."""
    found: dict[str, Any] = {"External id": event.id}
    if event.input_shapes:
        found["Input Dims"] = event.input_shapes
    if event.sequence_nr >= 0:
        found["Sequence number"] = event.sequence_nr
    if event.stack:
        found["Call stack"] = ";".join(reversed(event.stack))
    if event.module:
        found["Module Hierarchy"] = event.module
    if event.flops:
        found["flops"] = event.flops
    if event.cpu_memory_usage:
        found["Bytes"] = event.cpu_memory_usage
    return found


def _arrows(events: EventList, process: int) -> list[dict]:
    forward = {e.sequence_nr: e for e in reversed(events) if e.sequence_nr >= 0 and e.category == OP}
    entries: list[dict] = []
    for event in events:
        origin = forward.get(event.sequence_nr) if event.category == NODE else None
        if origin is not None:
            common = {"cat": "fwdbwd", "name": "fwdbwd", "pid": process, "id": event.sequence_nr}
            entries.append({"ph": "s", "tid": origin.thread, "ts": origin.time_range.start, **common})
            entries.append({"ph": "f", "bp": "e", "tid": event.thread, "ts": event.time_range.start, **common})
    return entries
