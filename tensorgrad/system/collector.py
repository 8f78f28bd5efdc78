"""Python's collector of cycles while packages are imported."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Pauses the collector while a block makes many objects that stay; afterwards they count as old.

    Otherwise it goes through all of them several times: while they are being made, twice more until they are old, and
    then because there are so many new old ones. Objects that the program made shortly before count as old, too: if they
    are part of a cycle, the next collection of all objects frees them.

    >>> import gc
    >>> from tensorgrad.system.collector import paused
    >>> with paused():
    ...     gc.isenabled()
    False
    >>> gc.isenabled()
    True
    """
    if not gc.isenabled() or gc.get_freeze_count():  # the program has its own arrangements
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        _count_as_old()
        gc.enable()


def _count_as_old() -> None:
    gc.freeze()  # takes all objects out of their generations,
    gc.unfreeze()  # and puts them into the oldest one


PATIENCE = 200_000  # new objects after which a patient collector runs
_usual: list[tuple[int, int, int]] = []  # the thresholds that `impatient` sets again


def patient() -> None:
    """Lets the collector run rarely until `impatient` is called, that is, until the first op.

    Programs import other libraries first, which make tens of thousands of objects that stay. The collector does not
    pause: programs that never call an op need it.
    """
    if gc.isenabled() and not gc.get_freeze_count() and not _usual and 0 < gc.get_threshold()[0] < PATIENCE:
        _usual.append(gc.get_threshold())
        gc.set_threshold(PATIENCE, *_usual[0][1:])


def impatient() -> None:
    """Undoes `patient`, unless the program has set thresholds of its own. What was made in between counts as old.

    >>> import gc
    >>> from tensorgrad.system.collector import PATIENCE, impatient, patient
    >>> impatient()
    >>> usual = gc.get_threshold()
    >>> patient()
    >>> gc.get_threshold()[0] == PATIENCE
    True
    >>> impatient()
    >>> gc.get_threshold() == usual
    True
    """
    try:
        usual = _usual.pop()
    except IndexError:  # it is not patient, or another thread was first
        return
    if gc.get_threshold() == (PATIENCE, *usual[1:]):
        gc.set_threshold(*usual)
        if gc.isenabled() and not gc.get_freeze_count():
            _count_as_old()
