"""Records, in anomaly mode, the call that created each node."""

from __future__ import annotations

import traceback
from pathlib import Path

from tensorgrad.autograd import passes

_PACKAGE = Path(__file__).parent.parent
# Frames in these folders do not help users.
_OPS = (
    *(str(_PACKAGE / folder) for folder in ("ops", "rows", "overriding", "dispatch", "transforms", "autograd")),
    "<tensorgrad",
)


def remember(node) -> None:
    """Records where `node` is created, and, during a backward pass, which node is running."""
    frames = traceback.extract_stack()
    while frames and frames[-1].filename.startswith(_OPS):
        frames.pop()
    node.metadata["traceback_"] = traceback.format_list(frames)
    node.metadata["parent_"] = passes.current_node()
