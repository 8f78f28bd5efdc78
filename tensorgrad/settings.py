"""Settings of the process: threads, deterministic algorithms, precision. Some are stored without effect, as noted."""

from __future__ import annotations

import os
import warnings

from tensorgrad.system import blas
from tensorgrad.system.processors import share

__all__ = [
    "are_deterministic_algorithms_enabled", "get_deterministic_debug_mode", "get_float32_matmul_precision",
    "get_num_interop_threads", "get_num_threads", "is_deterministic_algorithms_warn_only_enabled",
    "is_warn_always_enabled", "set_deterministic_debug_mode", "set_float32_matmul_precision", "set_flush_denormal",
    "set_num_interop_threads", "set_num_threads", "set_warn_always", "use_deterministic_algorithms",
]  # fmt: skip


def _default_threads() -> int:
    """OMP_NUM_THREADS, which PyTorch uses too, or else the number of processors available to this process.

    In a container with a CPU limit (`docker --cpus`), more threads would only wait for each other. Ranks of a job on
    one machine share the processors.
    """
    given = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if given.isdecimal() and int(given):
        return int(given)
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    return share(int(ranks) if ranks.isdecimal() else 1)


class SETTINGS:
    """The values passed to the setters below."""

    threads = _default_threads()
    interop_threads = os.cpu_count() or 1
    interop_was_set = False
    deterministic = warn_only = False
    fill_memory = True  # in deterministic mode: fills memory that would be left uninitialized
    warn_always = False
    matmul_precision = "highest"


# --- threads -------------------------------------------------------------------------------------------------------


def _check_threads(name: str, n) -> None:
    if not isinstance(n, int) or isinstance(n, bool):
        raise RuntimeError(f"{name} expects an int, but got {type(n).__name__}")
    if n < 1:
        raise RuntimeError(f"{name} expects a positive integer, got {n}")


def get_num_threads() -> int:
    """Returns the number of threads last set, or OMP_NUM_THREADS, or the number of processors.

    >>> torch.get_num_threads() >= 1
    True
    """
    return SETTINGS.threads


def set_num_threads(n: int) -> None:
    """Sets the number of threads of compiled kernels, and of the BLAS that multiplies matrices for NumPy.

    Warns once if that BLAS has no function for it.

    Raises:
        RuntimeError: If `n` is not a positive integer.

    >>> before = torch.get_num_threads()
    >>> torch.set_num_threads(1)
    >>> torch.get_num_threads()
    1
    >>> torch.set_num_threads(before)
    """
    _check_threads("set_num_threads", n)
    if not limit_threads(n) and (reason := blas.why_not()):
        warn_once(f"set_num_threads({n}) has no effect on NumPy's own products: {reason}")


def limit_threads(n: int) -> bool:
    """Does what `set_num_threads` does. Returns whether the BLAS could be set, and does not warn."""
    with blas.LOCK:  # two threads that set different numbers end with one of them everywhere
        SETTINGS.threads = n
        return blas.set_threads(n)


def get_num_interop_threads() -> int:
    """Returns the number of inter-op threads last set, or the number of processors.

    >>> torch.get_num_interop_threads() >= 1
    True
    """
    return SETTINGS.interop_threads


def set_num_interop_threads(n: int) -> None:
    """Stored without effect: ops run one after the other. As in PyTorch, it may be set only once.

    Raises:
        RuntimeError: If `n` is not a positive integer, or on the second call.

    >>> torch.set_num_interop_threads(0)
    Traceback (most recent call last):
        ...
    RuntimeError: set_num_interop_threads expects a positive integer, got 0
    """
    _check_threads("set_num_interop_threads", n)
    if SETTINGS.interop_was_set:
        raise RuntimeError(
            "Error: cannot set number of interop threads after parallel work has started or set_num_interop_threads "
            "called"
        )
    SETTINGS.interop_threads, SETTINGS.interop_was_set = n, True


# --- deterministic algorithms --------------------------------------------------------------------------------------

_DEBUG_MODES = ("default", "warn", "error")


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Requires deterministic results. On the CPU they always are; on GPUs, sums at indices then have a fixed order.

    Also fills uninitialized memory, unless `torch.utils.deterministic.fill_uninitialized_memory` is False.

    Raises:
        TypeError: Unless both are booleans.

    >>> torch.use_deterministic_algorithms(True)
    >>> torch.are_deterministic_algorithms_enabled()
    True
    >>> torch.use_deterministic_algorithms(False)
    """
    for name, value in (("mode", mode), ("warn_only", warn_only)):
        if not isinstance(value, bool):
            raise TypeError(
                f"use_deterministic_algorithms(): argument '{name}' must be bool, not {type(value).__name__}"
            )
    SETTINGS.deterministic, SETTINGS.warn_only = mode, warn_only


def are_deterministic_algorithms_enabled() -> bool:
    """Returns the mode last passed to `use_deterministic_algorithms`.

    >>> torch.are_deterministic_algorithms_enabled()
    False
    """
    return SETTINGS.deterministic


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Returns the `warn_only` last passed to `use_deterministic_algorithms`.

    >>> torch.use_deterministic_algorithms(True, warn_only=True)
    >>> torch.is_deterministic_algorithms_warn_only_enabled()
    True
    >>> torch.use_deterministic_algorithms(False)
    """
    return SETTINGS.warn_only


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """Calls `use_deterministic_algorithms` by number or name: 0 "default" (off), 1 "warn", 2 "error".

    Raises:
        TypeError or RuntimeError: For anything else.

    >>> torch.set_deterministic_debug_mode("warn")
    >>> torch.get_deterministic_debug_mode()
    1
    >>> torch.set_deterministic_debug_mode(0)
    """
    if not isinstance(debug_mode, int | str):
        raise TypeError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    if isinstance(debug_mode, str):
        if debug_mode not in _DEBUG_MODES:
            raise RuntimeError(
                f"invalid value of debug_mode, expected one of `default`, `warn`, `error`, but got {debug_mode}"
            )
        debug_mode = _DEBUG_MODES.index(debug_mode)
    if debug_mode not in (0, 1, 2):
        raise RuntimeError(f"invalid value of debug_mode, expected 0, 1, or 2, but got {debug_mode}")
    use_deterministic_algorithms(debug_mode > 0, warn_only=debug_mode == 1)


def get_deterministic_debug_mode() -> int:
    """Returns 0 if deterministic algorithms are off, 1 if their absence causes a warning, 2 if an error.

    >>> torch.get_deterministic_debug_mode()
    0
    """
    return 0 if not SETTINGS.deterministic else 1 if SETTINGS.warn_only else 2


# --- precision -----------------------------------------------------------------------------------------------------


def get_float32_matmul_precision() -> str:
    """Returns the value last passed to `set_float32_matmul_precision`; initially "highest".

    >>> torch.get_float32_matmul_precision()
    'highest'
    """
    return SETTINGS.matmul_precision


def set_float32_matmul_precision(precision: str) -> None:
    """Sets whether float32 matrix products on GPUs may round their factors.

    "highest" forbids it; "high" and "medium" allow TF32. On the CPU products are always computed in float32. Any other
    value causes a warning and is ignored.

    Raises:
        RuntimeError: If `precision` is not a string.

    >>> torch.set_float32_matmul_precision("high")
    >>> torch.get_float32_matmul_precision()
    'high'
    >>> torch.set_float32_matmul_precision("highest")
    """
    if not isinstance(precision, str):
        raise RuntimeError(f"set_float32_matmul_precision expects a str, but got {type(precision).__name__}")
    if precision not in ("highest", "high", "medium"):
        warnings.warn(
            f"{precision} is not one of 'highest', 'high', or 'medium'; the current setFloat32MatmulPrecision call has "
            "no effect.",
            stacklevel=2,
        )
        return
    SETTINGS.matmul_precision = precision


def set_flush_denormal(mode: bool) -> bool:
    """Returns whether denormals will be flushed to zero: always False, since NumPy keeps them.

    Raises:
        RuntimeError: Unless `mode` is a boolean.

    >>> torch.set_flush_denormal(False)
    False
    """
    if not isinstance(mode, bool):
        raise RuntimeError(f"flush_denormal expects a bool, but got {type(mode).__name__}")
    return False


# --- warnings ------------------------------------------------------------------------------------------------------


def is_warn_always_enabled() -> bool:
    """Returns the value last passed to `set_warn_always`.

    >>> torch.is_warn_always_enabled()
    False
    """
    return SETTINGS.warn_always


def set_warn_always(b: bool) -> None:
    """Sets whether one-time warnings, such as that of `backward(create_graph=True)`, are issued every time.

    Python's own filters apply as well (`warnings.simplefilter("always")`).

    Raises:
        RuntimeError: Unless `b` is a boolean.

    >>> torch.set_warn_always(True)
    >>> torch.is_warn_always_enabled()
    True
    >>> torch.set_warn_always(False)
    """
    if not isinstance(b, bool):
        raise RuntimeError(f"setWarnOnlyOnce expects a bool, but got {type(b).__name__}")
    SETTINGS.warn_always = b


_warned: set[str] = set()


def warn_once(message: str) -> None:
    """Warns only the first time, or after `set_warn_always(True)` every time."""
    from tensorgrad.errors import warn

    if message not in _warned or SETTINGS.warn_always:
        _warned.add(message)
        warn(message)
