"""Anomaly mode: records where each node was created, and stops backward at the first nan."""

from __future__ import annotations

import sys

from tensorgrad.errors import warn
from tensorgrad.rows.switches import LOCAL, switch
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.tensor import Tensor, share


class _Anomaly:
    """One setting for the whole process, as in PyTorch."""

    enabled = False
    check_nan = True


ANOMALY = _Anomaly()


class set_detect_anomaly:
    """Enables or disables anomaly mode; as a context manager, restores the previous setting.

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
    """A context manager in which ops record their call; backward raises if a gradient is nan, naming the forward line.

    Slow: use it for debugging only.

    >>> import warnings
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
    """Enables or disables anomaly mode.

    Raises:
        TypeError: If an argument is not a boolean.

    >>> torch.set_anomaly_enabled(False)
    """
    for nr, (name, value) in enumerate({"enabled": enabled, "check_nan": check_nan}.items(), 1):
        if not isinstance(value, bool):
            problem = f"argument '{name}' (position {nr}) must be bool, not {type(value).__name__}"
            raise TypeError(f"set_anomaly_enabled(): {problem}")
    _switch(enabled, check_nan)


def is_anomaly_enabled() -> bool:
    """Returns whether anomaly mode is on.

    >>> with torch.autograd.set_detect_anomaly(True):
    ...     torch.is_anomaly_enabled()
    True
    """
    return ANOMALY.enabled


def is_anomaly_check_nan_enabled() -> bool:
    """Returns whether `detect_anomaly` checks gradients for nan when it is on.

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
    """Raises: RuntimeError if a gradient that `node` computed contains nan."""
    for i, grad in enumerate(results):
        if grad is not None and grad._array.dtype.kind in "fc" and _has_nan(grad):
            raise RuntimeError(f"Function '{node.name()}' returned nan values in its {i}th output.")


def _has_nan(grad: Tensor) -> bool:
    """Whether a gradient contains nan: within transforms, whether that of any sample does."""
    array = grad._array
    before, LOCAL.transforms = LOCAL.transforms, ()
    try:
        return bool(share(STORAGES[array.__class__].all_samples(array), None).isnan().any())
    finally:
        LOCAL.transforms = before


def report(node) -> None:
    """Warns about a node that failed, with the forward call that created it.

    If that call was itself part of a backward pass, also reports the node that was running, and so on.
    """
    text, caused = f"Error detected in {node.name()}.", " that caused the error"
    while node is not None:
        metadata = node.__dict__.get("_metadata", {})
        if "traceback_" in metadata:
            _warn(f"{text} Traceback of forward call{caused}:\n{''.join(metadata['traceback_'])}")
        else:
            _warn(
                f"{text} No forward pass information available. Enable detect anomaly during forward pass for more "
                "information."
            )
        node = metadata.get("parent_")
        if node is not None:
            text = f"\n\nPrevious calculation was induced by {node.name()}."
            caused = " that induced the previous calculation"


def _warn(text: str) -> None:
    try:
        warn(text)
    except Warning as raised:  # warnings are errors here, but the original error matters more
        print(f"{type(raised).__name__}: {raised}", file=sys.stderr)
