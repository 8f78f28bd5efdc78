"""What users may do with the tensors that the graph saves for backward: send them elsewhere, keep them as they were."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import contextmanager

from tensorgrad.dispatch.switches import LOCAL, switch
from tensorgrad.tensor import Tensor


class saved_tensors_hooks:
    """Inside, every tensor that ops save for backward goes through `pack_hook` when saved, `unpack_hook` when used.

    `pack_hook(tensor)` may return anything (a file name, a compressed copy); `unpack_hook` makes a tensor of it again.

    >>> import tensorgrad as torch
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
        if LOCAL.saved_hooks:  # it may have been left by hand before
            LOCAL.saved_hooks = LOCAL.saved_hooks[:-1]
            switch("saved_tensors_hooks", False)


class save_on_cpu(saved_tensors_hooks):
    """Inside, what ops save waits in main memory (with `pin_memory` where a GPU can read it by itself), and comes back
    to its device when it is needed.

    >>> import tensorgrad as torch
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
    """Inside, `saved_tensors_hooks` raise a RuntimeError with this message.

    Raises: RuntimeError with the message if such hooks are in force already.

    >>> import tensorgrad as torch
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
    """What `allow_mutation_on_saved_tensors` keeps: a copy of everything that was saved inside it."""

    def __init__(self) -> None:
        self.copies: dict[int, Tensor] = {}
        self.open = True

    def clear(self) -> None:
        """Lets go of the copies: backward can no longer use them."""
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
    """Inside, tensors that backward needs may be written in place: what ops save is a copy of its own.

    Backward must run inside, too. It costs the memory of the copies until the end; `clear()` of what the context gives
    frees them before. Raises: RuntimeError if contexts are nested.

    >>> import tensorgrad as torch
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
    """Tells autograd that a tensor (or each of several) was written by something it does not know of.

    >>> import tensorgrad as torch
    >>> x = torch.ones(2)
    >>> x.numpy()[0] = 7
    >>> torch.autograd.graph.increment_version(x)
    >>> x._version
    1
    """
    for written in (tensor,) if isinstance(tensor, Tensor) else tensor:
        if not written.is_inference():
            written._storage.bump()
