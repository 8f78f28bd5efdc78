"""The datapipe that reads open files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tensorgrad.utils.data.datapipes._decorator import functional_datapipe
from tensorgrad.utils.data.datapipes.datapipe import IterDataPipe

__all__ = ["StreamReaderIterDataPipe"]


@functional_datapipe("read_from_stream")
class StreamReaderIterDataPipe(IterDataPipe):
    """Yields pairs of a label and what is read from a stream (method `read_from_stream`).

    Args:
        datapipe: Pairs of a label and an open stream.
        chunk: How many bytes or characters to read at once; None: all.

    >>> import io
    >>> from tensorgrad.utils.data.datapipes.iter import IterableWrapper
    >>> list(IterableWrapper([("a", io.BytesIO(b"hello"))], deepcopy=False).read_from_stream(3))
    [('a', b'hel'), ('a', b'lo')]
    """

    def __init__(self, datapipe: Any, chunk: int | None = None) -> None:
        self.datapipe, self.chunk = datapipe, chunk

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        for label, stream in self.datapipe:
            while part := stream.read(self.chunk):
                yield label, part
            stream.close()
