"""The datapipe that decodes files by their extensions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

from tensorgrad.utils.data.datapipes._decorator import functional_datapipe
from tensorgrad.utils.data.datapipes.datapipe import IterDataPipe
from tensorgrad.utils.data.datapipes.utils.decoder import (
    Decoder,
    basichandlers,
    extension_extract_fn,
    imagehandler,
)

__all__ = ["RoutedDecoderIterDataPipe"]


@functional_datapipe("routed_decode")
class RoutedDecoderIterDataPipe(IterDataPipe):
    """Yields pairs of a path and what is in the file (method `routed_decode`).

    Args:
        datapipe: Pairs of a path and an open file, or its bytes.
        handlers: Functions of an extension and bytes that return what is in the file, or None. By default texts,
            numbers, JSON, pickles, files of `torch.save`, and images.
        key_fn: The function from a path to the extension.

    >>> from tensorgrad.utils.data.datapipes.iter import IterableWrapper
    >>> list(IterableWrapper([("a.json", b'{"x": 1}'), ("b.txt", b"hello")]).routed_decode())
    [('a.json', {'x': 1}), ('b.txt', 'hello')]
    """

    def __init__(self, datapipe: Any, *handlers: Callable, key_fn: Callable = extension_extract_fn) -> None:
        self.datapipe = datapipe
        self.decoder = Decoder(*(handlers or (basichandlers, imagehandler("torch"))), key_fn=key_fn)
        warnings.warn(
            "`RoutedDecoderIterDataPipe()` and its functional API `.routed_decode()` are deprecated since 1.12 and "
            "will be removed in 1.13.\nSee https://github.com/pytorch/data/issues/163 for details.",
            FutureWarning,
            stacklevel=2,
        )

    def add_handler(self, *handler: Callable) -> None:
        """Adds handlers, which are asked first."""
        self.decoder.add_handler(*handler)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        for path, file in self.datapipe:
            decoded = self.decoder({path: file})
            yield path, decoded[path]

    def __len__(self) -> int:
        return len(self.datapipe)
