"""The backend "c10d": machines keep what they all know in a store of this package."""

from __future__ import annotations

import os
import tempfile
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from datetime import timedelta
from typing import Any

from tensorgrad.distributed.elastic.rendezvous.api import (
    RendezvousConnectionError,
    RendezvousError,
    RendezvousParameters,
    RendezvousStateError,
)
from tensorgrad.distributed.elastic.rendezvous.connection import DEFAULT_PORT, is_here, split_endpoint
from tensorgrad.distributed.elastic.rendezvous.dynamic_rendezvous import RendezvousBackend, Token
from tensorgrad.distributed.stores.file_store import FileStore
from tensorgrad.distributed.stores.store import Store
from tensorgrad.distributed.stores.tcp_store import TCPStore

__all__ = ["C10dRendezvousBackend", "create_backend"]

NOTHING = "-"  # stored at first: to read a key that a store does not have would wait for it; it is not base64
UNREACHABLE = "The connection to the C10d store has failed. See inner exception for details."


class C10dRendezvousBackend(RendezvousBackend):
    """Keeps what machines know in a store.

    Args:
        store: what all machines share.
        run_id: the name of the job.

    Raises:
        ValueError: there is no name.
        RendezvousConnectionError: the store cannot be reached.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
    >>> backend = C10dRendezvousBackend(dist.HashStore(), "job1")
    >>> backend.get_state()
    >>> backend.set_state(b"first")[2], backend.set_state(b"second")[2], backend.get_state()[0]
    (True, False, b'first')
    """

    def __init__(self, store: Store, run_id: str) -> None:
        if not run_id:
            raise ValueError("The run id must be a non-empty string.")
        self._store, self._key = store, f"torch.rendezvous.{run_id}"
        self._call("compare_set", self._key, "", NOTHING)

    @property
    def name(self) -> str:
        """The name "c10d"."""
        return "c10d"

    def get_state(self) -> tuple[bytes, Token] | None:
        """Returns what is stored, and a token that stands for this version; None if there is nothing."""
        return self._decoded(self._call("get", self._key))

    def set_state(self, state: bytes, token: Token | None = None) -> tuple[bytes, Token, bool] | None:
        """Stores something, unless another version than the token's is there.

        Args:
            state: what to store.
            token: of the version that it replaces; None if there was nothing.

        Returns:
            What is stored now, its token, and whether that is the new state; None if there is nothing.
        """
        if token and not isinstance(token, bytes):  # no version ever had it
            found = self.get_state()
        else:
            new = b64encode(state).decode()
            found = self._decoded(self._call("compare_set", self._key, token.decode() if token else NOTHING, new))
        return None if found is None else (*found, found[0] == state)

    def _call(self, operation: str, *arguments: str) -> Any:
        try:
            return getattr(self._store, operation)(*arguments)
        except (ValueError, RuntimeError, TimeoutError) as error:
            raise RendezvousConnectionError(UNREACHABLE) from error

    def _decoded(self, stored: bytes) -> tuple[bytes, Token] | None:
        if stored == NOTHING.encode():
            return None
        try:
            return b64decode(stored, validate=True), stored
        except NotBase64 as error:
            raise RendezvousStateError("The state object is corrupt. See inner exception for details.") from error


def _tcp_store(params: RendezvousParameters) -> TCPStore:
    """Serves the store if the endpoint is this machine, and connects to it otherwise."""
    host, port = split_endpoint(params.endpoint, DEFAULT_PORT)
    chosen, wait = params.get_as_bool("is_host"), params.get_as_int("read_timeout", 60)
    if not wait or wait <= 0:
        raise ValueError("The read timeout must be a positive integer.")
    for serves in (True, False) if chosen is None and is_here(host) else (bool(chosen),):
        try:
            return TCPStore(host, port, None, serves, timedelta(seconds=wait))
        except (ValueError, RuntimeError, TimeoutError) as error:
            if not serves or chosen is not None:  # else another process of this machine serves it already
                raise RendezvousConnectionError(UNREACHABLE) from error
    raise AssertionError


def _file_store(params: RendezvousParameters) -> FileStore:
    path = params.endpoint
    if not path:
        try:
            descriptor, path = tempfile.mkstemp()
        except OSError as error:
            raise RendezvousError(
                "The file creation for C10d store has failed. See inner exception for details."
            ) from error
        os.close(descriptor)
    try:
        return FileStore(path)
    except (ValueError, RuntimeError) as error:
        raise RendezvousConnectionError(UNREACHABLE) from error


def create_backend(params: RendezvousParameters) -> tuple[C10dRendezvousBackend, Store]:
    """Returns a backend, and its store.

    Args:
        params: of the rendezvous. `store_type` is "tcp" (the default) or "file", whose path is the endpoint;
            `read_timeout` is how many seconds to wait for an answer; `is_host` says whether this machine serves the
            store, which is otherwise found out by the endpoint.

    Raises:
        ValueError: there is no such type.
        RendezvousConnectionError: the store cannot be reached.
    """
    kinds = {"tcp": _tcp_store, "file": _file_store}
    kind = params.get("store_type", "tcp").strip().lower()
    if kind not in kinds:
        raise ValueError("Invalid store type given. Currently only supports file and tcp.")
    store = kinds[kind](params)
    return C10dRendezvousBackend(store, params.run_id), store
