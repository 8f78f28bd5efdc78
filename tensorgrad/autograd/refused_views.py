"""Views that must not be written to while ops are recorded: why they exist, and the error that explains it."""

from __future__ import annotations

import re
from typing import Any

from tensorgrad.tensor import Tensor

# Values for the last element of `_view`, which is usually True or False (created with grad mode on or off). These are
# falsy, and so are views of them: such a view must not be written to while ops are recorded.
MULTI: Any = ()  # one of several views returned by one call
CUSTOM: Any = frozenset()  # returned by a custom function
INFERENCE: Any = ""  # created in inference mode from a tensor that was not

REASONS = {
    MULTI: " This view is the output of a function that returns multiple views. Such functions do not allow the output "
    "views to be modified inplace. You should replace the inplace operation by an out-of-place one.",
    CUSTOM: " This view was created inside a custom Function (or because an input was returned as-is) and the autograd "
    "logic to handle view+inplace would override the custom backward associated with the custom Function, leading to "
    "incorrect gradients. This behavior is forbidden. You can fix this by cloning the output of the custom Function.",
}
AMBIGUOUS = (
    " Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your code by moving both "
    "the view and the inplace either both inside the {} block (if you don't want the inplace to be tracked) or both "
    "outside (if you want the inplace to be tracked)."
)


def forbid(view: Tensor, what: str) -> None:
    """Raises the error for a write to a view, or to its base, that the view cannot follow."""
    recorded = view._view[3]  # type: ignore[index]
    output = ""
    if view._edge is not None:
        node, nr = view._edge
        output = f"Output {nr} of {re.sub(r'Backward[0-9]*$', '', node.name())} is a view"
    mode = "inference_mode" if recorded is INFERENCE else "no_grad"
    if not output or recorded not in REASONS:
        made = "inference mode" if recorded is INFERENCE else "no_grad mode"
        output = f"{output} of a view which was created in {made}" if output else f"A view was created in {made}"
        what += " in normal mode" if recorded is INFERENCE else " with grad mode enabled"
    raise RuntimeError(f"{output} and {what}.{REASONS.get(recorded, AMBIGUOUS.format(mode))}")
