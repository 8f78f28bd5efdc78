"""`FileStore`: a store in a file, for processes that share a file system."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import IO

from tensorgrad.distributed.errors import DistStoreError
from tensorgrad.distributed.stores import wire
from tensorgrad.distributed.stores.key_table import Table
from tensorgrad.distributed.stores.store import Store, wait_until
from tensorgrad.system import forks

__all__ = ["FileStore"]


class FileStore(Store):
    """A store in a file: a log of operations, which every process replays.

    Use a new or empty file for each job. The file is not deleted.

    Args:
        file_name: the file; it is made if there is none.
        world_size: how many processes use it; accepted for compatibility.

    >>> import os, tempfile
    >>> import tensorgrad.distributed as dist
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "store")
    >>> dist.FileStore(path, 2).set("key", "value")
    >>> dist.FileStore(path, 2).get("key")
    b'value'
    >>> folder.cleanup()
    """

    def __init__(self, file_name: str, world_size: int = -1) -> None:
        self._path = os.fspath(file_name)
        self._table, self._place = Table(), 0
        self._lock = forks.lock()
        with open(self._path, "ab"):
            pass

    @property
    def path(self) -> str:
        """The file.

        >>> import os, tempfile
        >>> import tensorgrad.distributed as dist
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     os.path.basename(dist.FileStore(os.path.join(folder, "store")).path)
        'store'
        """
        return self._path

    def _replay(self, file: IO[bytes]) -> None:
        """Applies what other processes have added to the file. Raises: DistStoreError if it is not such a file."""
        file.seek(self._place)
        while True:
            head = file.read(4)
            body = file.read(min(int.from_bytes(head, "big"), wire.MAX_FRAME))
            if len(head) < 4 or len(body) < int.from_bytes(head, "big"):
                break
            try:
                operation, *arguments = wire.unpack(body)
                self._table.apply(operation.decode("ascii"), arguments)
            except ValueError as error:
                raise DistStoreError(f"{self._path} is not the file of a store: {error}") from None
            self._place += 4 + len(body)

    def _call(self, operation: str, *arguments: bytes) -> list[bytes]:
        with self._lock, open(self._path, "r+b") as file, _locked(file):
            self._replay(file)
            result = self._table.apply(operation, list(arguments))
            if operation not in ("get", "check", "keys", "count", "length"):
                record = wire.pack([operation.encode(), *arguments])
                file.seek(self._place)
                file.truncate()  # what a process that was ended in the middle of a record has left
                file.write(record)
                file.flush()
                self._place += len(record)
            return result

    def _wait(self, keys: list[str], timeout: timedelta) -> None:
        if not wait_until(lambda: self.check(keys), timeout):
            raise DistStoreError("Wait timeout")

    def get(self, key: str) -> bytes:
        try:
            return super().get(key)
        except DistStoreError:
            milliseconds = round(self.timeout.total_seconds() * 1000)
            raise DistStoreError(f"Timeout waiting for key: {key} after {milliseconds} ms") from None


@contextmanager
def _locked(file: IO[bytes]) -> Iterator[None]:
    """Holds the file's lock, which other processes respect."""
    if sys.platform == "win32":
        import msvcrt

        while True:
            try:
                file.seek(1 << 40)  # a byte beyond the end, so that reading is not affected
                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
                break
            except OSError:
                time.sleep(0.01)
        try:
            yield
        finally:
            file.seek(1 << 40)
            msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)
