"""Keeps Python's collector of reference cycles from running for a while."""

from __future__ import annotations

import gc


class Paused:
    """The collector does not run from now until `end` is called, or until this object is gone.

    Importing makes tens of thousands of objects that all stay, and every few hundred of them it would look through
    those that exist. The second way to end is for an import that fails: it takes the module's variables with it.

    >>> import gc
    >>> from tensorgrad.system.collector import Paused
    >>> paused = Paused()
    >>> gc.isenabled()
    False
    >>> paused.end()
    >>> gc.isenabled()
    True
    """

    def __init__(self) -> None:
        self._was_running = gc.isenabled()
        gc.disable()

    def end(self) -> None:
        """Lets the collector run again, if it did before."""
        if self._was_running:
            self._was_running = False
            gc.enable()

    __del__ = end
