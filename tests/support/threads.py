"""How many threads a library computes with, while a test runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def threads(library: Any, count: int) -> Iterator[None]:
    """A context in which torch or tensorgrad computes with so many threads."""
    before = library.get_num_threads()
    library.set_num_threads(count)
    try:
        yield
    finally:
        library.set_num_threads(before)
