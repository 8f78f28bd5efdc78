"""Anomaly mode: remembers where each node was recorded, and stops backward at the first nan."""

from __future__ import annotations

import sys

from tensorgrad.dispatch.switches import switch
from tensorgrad.errors import warn


class _Anomaly:
    """One switch for the whole process, as in PyTorch."""

    enabled = False
    check_nan = True


ANOMALY = _Anomaly()


class set_detect_anomaly:
    """Switches anomaly mode on or off; as a context manager, restores what was.

    >>> import tensorgrad as torch
    >>> with torch.autograd.set_detect_anomaly(True):
    ...     x = torch.tensor(-1.0, requires_grad=True)
    ...     x.sqrt().backward()
    Traceback (most recent call last):
        ...
    RuntimeError: Function 'SqrtBackward0' returned nan values in its 0th output.
    """

    def __init__(self, mode: bool, check_nan: bool = True):
        self.before = ANOMALY.enabled, ANOMALY.check_nan
        _switch(bool(mode), check_nan)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception) -> None:
        _switch(*self.before)


class detect_anomaly(set_detect_anomaly):
    """Inside, each op remembers its call, and backward raises when a gradient holds nan, naming the forward line.

    Slow: for finding mistakes only.

    >>> import warnings
    >>> import tensorgrad as torch
    >>> x = torch.tensor(-1.0, requires_grad=True)
    >>> with torch.autograd.detect_anomaly(), warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     x.sqrt().backward()
    Traceback (most recent call last):
    RuntimeError: Function 'SqrtBackward0' returned nan values in its 0th output.
    """

    def __init__(self, check_nan: bool = True):
        super().__init__(True, check_nan)
        warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for "
            "debugging."
        )


def set_anomaly_enabled(enabled: bool, check_nan: bool = True) -> None:
    """Switches anomaly mode on or off. Raises: TypeError for what is no boolean.

    >>> import tensorgrad as torch
    >>> torch.set_anomaly_enabled(False)
    """
    for nr, (name, value) in enumerate({"enabled": enabled, "check_nan": check_nan}.items(), 1):
        if not isinstance(value, bool):
            said = f"argument '{name}' (position {nr}) must be bool, not {type(value).__name__}"
            raise TypeError(f"set_anomaly_enabled(): {said}")
    _switch(enabled, check_nan)


def is_anomaly_enabled() -> bool:
    """Whether anomaly mode is on.

    >>> import tensorgrad as torch
    >>> with torch.autograd.set_detect_anomaly(True):
    ...     torch.is_anomaly_enabled()
    True
    """
    return ANOMALY.enabled


def is_anomaly_check_nan_enabled() -> bool:
    """Whether `detect_anomaly` looks for nan in gradients, where it is on.

    >>> import tensorgrad as torch
    >>> with torch.autograd.detect_anomaly(check_nan=False):
    ...     torch.is_anomaly_check_nan_enabled()
    False
    """
    return ANOMALY.check_nan


def _switch(enabled: bool, check_nan: bool) -> None:
    if enabled != ANOMALY.enabled:
        switch("anomaly mode", enabled)
    ANOMALY.enabled, ANOMALY.check_nan = enabled, check_nan


def check(node, results) -> None:
    """Raises: RuntimeError if a gradient that `node` computed holds nan."""
    for i, grad in enumerate(results):
        if grad is not None and grad._array.dtype.kind in "fc" and bool(grad.isnan().any()):
            raise RuntimeError(f"Function '{node.name()}' returned nan values in its {i}th output.")


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
