"""Anomaly mode: remembers where each node was recorded, and stops backward at the first nan."""

from __future__ import annotations

import warnings


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


def is_anomaly_enabled() -> bool:
    """Whether anomaly mode is on.

    >>> import tensorgrad as torch
    >>> with torch.autograd.set_detect_anomaly(True):
    ...     torch.is_anomaly_enabled()
    True
    """
    return ANOMALY.enabled


def _switch(enabled: bool, check_nan: bool) -> None:
    from tensorgrad.ops import callpath

    if enabled != ANOMALY.enabled:
        callpath.rare(+1 if enabled else -1)
    ANOMALY.enabled, ANOMALY.check_nan = enabled, check_nan


def check(node, results) -> None:
    """Raises: RuntimeError if a gradient that `node` computed holds nan; warns with the forward call that made it."""
    for i, grad in enumerate(results):
        if grad is None or grad._array.dtype.kind not in "fc" or not bool(grad.isnan().any()):
            continue
        stack = node.__dict__.get("_metadata", {}).get("traceback_")
        if stack:
            warnings.warn(
                f"Error detected in {node.name()}. Traceback of forward call that caused the error:\n{''.join(stack)}",
                stacklevel=2,
            )
        else:
            warnings.warn(
                f"Error detected in {node.name()}. No forward pass information available. Enable detect anomaly during "
                "forward pass for more information.",
                stacklevel=2,
            )
        raise RuntimeError(f"Function '{node.name()}' returned nan values in its {i}th output.")
