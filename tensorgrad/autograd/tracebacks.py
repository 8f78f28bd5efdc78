"""In anomaly mode each node knows the call that made it, and an error in backward comes with that call."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

from tensorgrad.autograd import passes
from tensorgrad.dispatch.errors import warn

_PACKAGE = Path(__file__).parent.parent
_OPS = (str(_PACKAGE / "ops"), str(_PACKAGE / "autograd"), "<tensorgrad")  # frames of these are of no help to users


def remember(node) -> None:
    """Notes where `node` is recorded, and if that is in a backward pass, at which node this is."""
    frames = traceback.extract_stack()
    while frames and frames[-1].filename.startswith(_OPS):
        frames.pop()
    node.metadata["traceback_"] = traceback.format_list(frames)
    node.metadata["parent_"] = passes.current_node()


def report(node) -> None:
    """Warns of a node that failed, with the forward call that made it; and in a graph of a backward pass with what
    led to that, call by call.
    """
    text, caused = f"Error detected in {node.name()}.", " that caused the error"
    while node is not None:
        known = node.__dict__.get("_metadata", {})
        if "traceback_" in known:
            _tell(f"{text} Traceback of forward call{caused}:\n{''.join(known['traceback_'])}")
        else:
            _tell(
                f"{text} No forward pass information available. Enable detect anomaly during forward pass for more "
                "information."
            )
        node = known.get("parent_")
        if node is not None:
            text = f"\n\nPrevious calculation was induced by {node.name()}."
            caused = " that induced the previous calculation"


def _tell(text: str) -> None:
    try:
        warn(text)
    except Warning as refused:  # the error that is under way comes first
        print(f"{type(refused).__name__}: {refused}", file=sys.stderr)
