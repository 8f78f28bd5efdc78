"""Context managers for the tensors that the graph saves for backward: they move, pack or copy them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import contextmanager

from tensorgrad.rows.switches import LOCAL, switch
from tensorgrad.tensor import Tensor


class saved_tensors_hooks:
    """Inside, `pack_hook` is applied to every tensor that ops save for backward, and `unpack_hook` when it is used.

    `pack_hook(tensor)` may return anything (a file name, a compressed copy); `unpack_hook` converts it back.

    >>> x = torch.tensor(3.0, requires_grad=True)
    >>> with torch.autograd.graph.saved_tensors_hooks(lambda t: t.item(), lambda number: torch.tensor(number)):
    ...     y = x * x
    >>> y.backward(); x.grad
    tensor(6.)
    """

    def __init__(self, pack_hook, unpack_hook):
        self.pair = (pack_hook, unpack_hook)

    def __enter__(self) -> None:
        if LOCAL.saved_hooks_refused is not None:
            raise RuntimeError(LOCAL.saved_hooks_refused)
        LOCAL.saved_hooks = (*LOCAL.saved_hooks, self.pair)
        switch("saved_tensors_hooks", True)

    def __exit__(self, *exception) -> None:
        if LOCAL.saved_hooks:  # may have been exited manually before
            LOCAL.saved_hooks = LOCAL.saved_hooks[:-1]
            switch("saved_tensors_hooks", False)


class save_on_cpu(saved_tensors_hooks):
    """Inside, saved tensors are kept in main memory and moved back to their device when they are needed.

    With `pin_memory` they are kept in page-locked memory, from which a GPU can read directly.

    >>> x = torch.tensor(3.0, requires_grad=True)
    >>> with torch.autograd.graph.save_on_cpu():
    ...     y = x * x
    >>> y.backward(); x.grad
    tensor(6.)
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda"):
        def pack(t):
            return t.device, t.cpu().pin_memory() if pin_memory and t.is_cuda else t.cpu()

        super().__init__(pack, lambda packed: packed[1].to(packed[0], non_blocking=pin_memory))


@contextmanager
def disable_saved_tensors_hooks(error_message: str):
    """Inside, `saved_tensors_hooks` raises a RuntimeError with this message.

    Raises:
        RuntimeError: With the message, if such hooks are already active.

    >>> with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
    ...     with torch.autograd.graph.save_on_cpu():
    ...         pass
    Traceback (most recent call last):
        ...
    RuntimeError: not here
    """
    if LOCAL.saved_hooks:
        raise RuntimeError(error_message)
    before, LOCAL.saved_hooks_refused = LOCAL.saved_hooks_refused, error_message
    try:
        yield
    finally:
        LOCAL.saved_hooks_refused = before


class _Copies:
    """The copies of everything that was saved inside `allow_mutation_on_saved_tensors`."""

    def __init__(self) -> None:
        self.copies: dict[int, Tensor] = {}
        self.open = True

    def clear(self) -> None:
        """Releases the copies: backward can no longer use them."""
        self.copies.clear()

    def pack(self, tensor: Tensor) -> int:
        key = len(self.copies)
        self.copies[key] = tensor.clone()
        return key

    def unpack(self, key: int) -> Tensor:
        if not self.open:
            raise RuntimeError(
                "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context in which the graph was "
                "originally recorded."
            )
        if key not in self.copies:
            raise RuntimeError("allow_mutation_on_saved_tensors: the saved tensors were cleared")
        return self.copies[key]


@contextmanager
def allow_mutation_on_saved_tensors():
    """Inside, tensors that backward needs may be written in place: ops save copies.

    Backward must run inside as well. The copies take memory until the end; calling `clear()` on the context's value
    frees them earlier.

    Raises:
        RuntimeError: If contexts are nested.

    >>> with torch.autograd.graph.allow_mutation_on_saved_tensors():
    ...     a = torch.tensor([2.0, 3.0], requires_grad=True).clone()
    ...     leaf = torch.ones(2, requires_grad=True)
    ...     b = (leaf * a).sum()
    ...     _ = a.zero_()
    ...     b.backward()
    >>> leaf.grad
    tensor([2., 3.])
    """
    if any(getattr(pack, "__self__", None).__class__ is _Copies for pack, _ in LOCAL.saved_hooks):
        raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
    copies = _Copies()
    try:
        with saved_tensors_hooks(copies.pack, copies.unpack):
            yield copies
    finally:
        copies.open = False
        copies.clear()


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Informs autograd that one or several tensors were written by code that it cannot track.

    >>> x = torch.ones(2)
    >>> x.numpy()[0] = 7
    >>> torch.autograd.graph.increment_version(x)
    >>> x._version
    1
    """
    for written in (tensor,) if isinstance(tensor, Tensor) else tensor:
        if not written.is_inference():
            written._storage.bump()
