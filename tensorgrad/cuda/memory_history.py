"""The history of a GPU's memory: which line of a program allocated what, and when it was freed.

While it is recorded, allocations pass through a function here, which writes down the stack of Python, and wraps the
memory so that its end is seen.
"""

from __future__ import annotations

import pickle
import sys
import time
from collections import deque
from typing import Any, NamedTuple

from tensorgrad.cuda.devices import is_initialized, module

__all__: list[str] = []

_KINDS = ("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "oom", "snapshot")


class _History:
    """What is recorded, from a call of `_record_memory_history` on."""

    def __init__(self, traces: bool, context: str | None, most: int, skipped: frozenset[str]) -> None:
        self.traces, self.context, self.skipped = traces, context, skipped
        self.events: dict[int, deque] = {}  # GPU -> what happened, the oldest first
        self.most = most
        self.live: dict[int, _Piece] = {}  # address -> what is allocated

    def note(self, device: int, action: str, **what: Any) -> None:
        """Writes down what happened."""
        if self.traces and action not in self.skipped:
            limit = None if self.most == sys.maxsize else self.most
            events = self.events.setdefault(device, deque(maxlen=limit))
            events.append({"action": action, **what, "time_us": time.time_ns() // 1000})


class _Piece(NamedTuple):
    """A piece of memory that is allocated."""

    device: int
    size: int
    requested: int
    stream: int
    frames: list


class _Owner:
    """The owner of memory that a tensor uses: its end is that of the memory."""

    __slots__ = ("memory", "piece")

    def __init__(self, memory: Any, piece: _Piece) -> None:
        self.memory, self.piece = memory, piece

    def __del__(self) -> None:
        history, piece, address = _STATE.history, self.piece, int(self.memory.ptr)
        if history is not None and history.live.get(address) is piece:
            del history.live[address]
            frames = _stack() if history.context == "all" else []
            for action in ("free_requested", "free_completed"):
                history.note(piece.device, action, addr=address, size=piece.size, stream=piece.stream, frames=frames)


class _State:
    """The history, while one is recorded or after that, and the allocator that was in use before."""

    history: _History | None = None
    before: Any = None


_STATE = _State()


def _stack() -> list[dict[str, Any]]:
    """The program's frames, the innermost first."""
    frames: list[dict[str, Any]] = []
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] not in ("tensorgrad", "cupy"):
            code = frame.f_code
            frames.append({"filename": code.co_filename, "line": frame.f_lineno, "name": code.co_name})
        frame = frame.f_back
    return frames


def _record_memory_history(
    enabled: str | None = "all",
    context: str | None = "all",
    stacks: str = "all",
    max_entries: int = sys.maxsize,
    device: Any = None,
    clear_history: bool = False,
    compile_context: bool = False,
    global_record_annotations: bool = False,
    skip_actions: list[str] | None = None,
) -> None:
    """Records what allocates and frees memory of GPUs, for `_snapshot`.

    Args:
        enabled: "all"; "state" to know only what is allocated now, since this call; None to end recording.
        context: for what stacks are written down: "all", "alloc" (not when memory is freed), "state" (the same),
            or None.
        stacks: accepted for compatibility: stacks are Python's.
        max_entries: how many events of a GPU are kept, the latest.
        device: accepted for compatibility: all GPUs are recorded.
        clear_history: whether what was recorded before is forgotten.
        compile_context: accepted for compatibility, as is `global_record_annotations`.
        skip_actions: kinds of events that are left out.

    Raises:
        RuntimeError: For another value; if there is no GPU.

    >>> if torch.cuda.is_available():
    ...     torch.cuda.memory._record_memory_history()
    ...     x = torch.ones(1000, device="cuda")
    ...     events = torch.cuda.memory._snapshot()["device_traces"][0]
    ...     torch.cuda.memory._record_memory_history(enabled=None)
    """
    if enabled not in (None, "state", "all"):
        raise RuntimeError(f"expected state to be 'state', 'all', or None, got {enabled!r}")
    if context not in (None, "state", "alloc", "all"):
        raise RuntimeError(f"expected context to be 'state', 'alloc', 'all', or None, got {context!r}")
    if any(kind not in _KINDS for kind in skip_actions or ()):
        raise RuntimeError(f"skip_actions: expected some of {', '.join(_KINDS)}, got {skip_actions}")
    cupy = module()
    if _STATE.before is not None:
        cupy.cuda.set_allocator(_STATE.before)
        _STATE.before = None
    if enabled is None:
        if _STATE.history is not None:
            _STATE.history.traces = False
        return
    made = _History(enabled == "all", context, max_entries, frozenset(skip_actions or ()))
    if _STATE.history is not None and not clear_history:
        made.live = _STATE.history.live
        made.events = {
            gpu: deque(events, None if max_entries == sys.maxsize else max_entries)
            for gpu, events in _STATE.history.events.items()
        }
    _STATE.history, before = made, cupy.cuda.get_allocator()

    def allocate(size: int) -> Any:
        try:
            memory = before(size)
        except Exception:
            made.note(cupy.cuda.runtime.getDevice(), "oom", size=size, frames=_stack() if made.context else [])
            raise
        frames = _stack() if made.context else []
        stream, address = int(cupy.cuda.get_current_stream().ptr), int(memory.ptr)
        piece = made.live[address] = _Piece(int(memory.device_id), int(memory.mem.size), size, stream, frames)
        made.note(piece.device, "alloc", addr=address, size=piece.size, stream=stream, frames=frames)
        owner = _Owner(memory, piece)
        return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(address, piece.size, owner, piece.device), 0)

    cupy.cuda.set_allocator(allocate)
    _STATE.before = before


def _snapshot(device: Any = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
    """Returns what has been recorded, in the form that PyTorch's viewer of memory reads.

    Args:
        device: accepted for compatibility: all GPUs are in it.
        augment_with_fx_traces: accepted for compatibility: code that is made of graphs has its own frames.

    Returns:
        A dictionary: "segments", memory that is allocated now, each piece as a segment with one block;
        "device_traces", for each GPU the events.
    """
    cupy = module()
    history = _STATE.history
    count = cupy.cuda.runtime.getDeviceCount() if is_initialized() else 0
    segments: list[dict[str, Any]] = []
    traces: list[list[dict[str, Any]]] = [[] for _ in range(count)]
    if history is not None:
        for address, block in sorted(list(history.live.items()), key=lambda item: item[0]):
            one = {
                "address": address, "size": block.size, "requested_size": block.requested,
                "state": "active_allocated", "frames": block.frames,
            }  # fmt: skip
            segments.append({
                "device": block.device, "address": address, "total_size": block.size, "allocated_size": block.size,
                "active_size": block.size, "requested_size": block.requested, "stream": block.stream,
                "segment_type": "large" if block.size > 2**20 else "small", "segment_pool_id": (0, 0),
                "is_expandable": False, "frames": block.frames, "blocks": [one],
            })  # fmt: skip
        for gpu, events in history.events.items():
            traces[gpu] = list(events)
    return {
        "segments": segments, "device_traces": traces, "allocator_settings": {}, "external_annotations": [],
    }  # fmt: skip


def _dump_snapshot(filename: Any = "dump_snapshot.pickle", augment_with_fx_traces: bool = False) -> None:
    """Writes a snapshot to a file, as a pickle of plain data."""
    made = _snapshot(augment_with_fx_traces=augment_with_fx_traces)
    with open(filename, "wb") as file:
        pickle.dump(made, file)
