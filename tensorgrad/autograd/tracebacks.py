"""In anomaly mode each node knows the call that made it."""

from __future__ import annotations

import traceback
from pathlib import Path

from tensorgrad.autograd import passes

_PACKAGE = Path(__file__).parent.parent
# Frames of these are of no help to users.
_OPS = (*(str(_PACKAGE / folder) for folder in ("ops", "dispatch", "autograd")), "<tensorgrad")


def remember(node) -> None:
    """Notes where `node` is recorded, and if that is in a backward pass, at which node this is."""
    frames = traceback.extract_stack()
    while frames and frames[-1].filename.startswith(_OPS):
        frames.pop()
    node.metadata["traceback_"] = traceback.format_list(frames)
    node.metadata["parent_"] = passes.current_node()
