"""Traced arrays: what the tensors of a program hold while it is recorded.

A `TracedArray` carries the real array and its place in the graph. It has the shape, strides and dtype of the array, but
no elements: whatever would read them (`.item()`, `bool(x)`, `x.numpy()`, NumPy's functions) finds none, and the
recorder is asked. So nothing can take a value out of the program without its knowledge.

Ops never see one: the recorder gives them the real arrays (capture/recorder.py). That is why recording changes no bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensorgrad.rows.kernel_tables import RULES
from tensorgrad.rows.switches import LOCAL
from tensorgrad.storage.stubs import STORAGES, Storage, storage_class
from tensorgrad.tensor import share

if TYPE_CHECKING:
    from tensorgrad.capture.recorder import Recorder
    from tensorgrad.fx.node import Node


class TracedArray:
    """A real array, and the node of the graph that stands for it."""

    __slots__ = ("__weakref__", "node", "real", "recorder")

    def __init__(self, recorder: Any, real: Any, node: Node | None) -> None:
        self.recorder, self.real, self.node = recorder, real, node

    shape = property(lambda self: self.real.shape)
    dtype = property(lambda self: self.real.dtype)
    strides = property(lambda self: self.real.strides)
    ndim = property(lambda self: self.real.ndim)
    size = property(lambda self: self.real.size)
    itemsize = property(lambda self: self.real.itemsize)
    nbytes = property(lambda self: self.real.nbytes)
    flags = property(lambda self: self.real.flags)

    def __len__(self) -> int:
        return len(self.real)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        real = self.read("a NumPy array")
        return real if dtype is None else real.astype(dtype)

    def read(self, what: str) -> Any:
        """The real array, whose elements are about to be read.

        Raises: ReadError unless the recorder allows it.
        """
        if self.recorder.active:
            self.recorder.own_thread()
            self.recorder.read(self.real, self.node, what)
        return self.real

    def fetched(self, method: str, what: str) -> Any:
        """What a method of the real storage's class makes of the real array, on the host."""
        real, recorder = self.read(what), self.recorder
        recorder.reading = True
        try:
            return getattr(STORAGES[real.__class__], method)(real)
        finally:
            recorder.reading = False


def recorder_of_thread() -> Recorder | None:
    """The recorder that is on in this thread."""
    transforms = LOCAL.transforms
    return transforms[0] if transforms and getattr(transforms[0], "records", False) else None


class TracedStorage(Storage):
    """The memory of a traced array: the real one, and the recorder that sees what is written to it."""

    __slots__ = ("real", "recorder")

    real: Storage
    recorder: Recorder
    device_type = backend = folder = "traced"
    array_type = TracedArray

    @classmethod
    def over(cls, recorder: Any, real: Storage) -> TracedStorage:
        """The traced storage of a real one."""
        storage = object.__new__(cls)
        storage.recorder, storage.real = recorder, real
        return storage

    @classmethod
    def of(cls, array: Any, version: int | None = 0) -> Storage:
        if array.__class__ is not TracedArray:
            return STORAGES[array.__class__].of(array, version)
        return array.recorder.storage_over(STORAGES[array.real.__class__].of(array.real, version))

    @property
    def array(self) -> TracedArray:
        """The array that owns the memory."""
        return self.recorder.owner_in(self.real)

    @property
    def memory(self) -> Storage:
        """The real storage's."""
        return self.real.memory

    @property
    def version(self) -> Any:
        """The real storage's."""
        return self.real.version

    @version.setter
    def version(self, version: Any) -> None:
        self.real.version = version

    @classmethod
    def device_of(cls, array: Any) -> Any:
        return STORAGES[array.real.__class__].device_of(array.real)

    @property
    def device(self) -> Any:
        """The real storage's."""
        return self.real.device

    def bump(self) -> None:
        self.real.bump()
        self.recorder.expect(self.real)

    def data_ptr(self) -> int:
        return self.real.data_ptr()

    def nbytes(self) -> int:
        return self.real.nbytes()

    size = nbytes

    def offset_of(self, array: Any) -> int:
        return self.real.offset_of(array.real if array.__class__ is TracedArray else array)

    def strided(self, shape: tuple, strides: tuple, offset: int, dtype: Any) -> Any:
        return self.recorder.strided(self.real, shape, strides, offset, dtype)

    def apart(self, array: Any) -> Any:
        return TracedArray(array.recorder, self.real.apart(array.real), array.node)

    @classmethod
    def to_host(cls, array: Any) -> Any:
        return array.fetched("to_host", "a NumPy array")

    @classmethod
    def number_on_host(cls, array: Any) -> Any:
        return array.fetched("number_on_host", "a Python number")

    @classmethod
    def empty(cls, shape: tuple, dtype: Any, device: Any) -> Any:
        return _recorder().empty(shape, dtype, device)

    @classmethod
    def copy(cls, array: Any) -> Any:
        return array.recorder.op("clone_copy", array, None)

    @classmethod
    def cast(cls, array: Any, dtype: Any, order: str = "K") -> Any:
        return array.recorder.cast(array, dtype)

    @classmethod
    def write(cls, target: Any, values: Any) -> None:
        _recorder().write(target, values)

    @classmethod
    def add_to(cls, target: Any, values: Any) -> None:
        _recorder().write(target, values, adds=True)

    @classmethod
    def number(cls, value: Any, like: Any) -> Any:
        return STORAGES[like.real.__class__].number(value, like.real)

    @classmethod
    def from_host(cls, array: Any, device: Any) -> Any:
        return storage_class(device).from_host(array, device)  # plain values, until something is done with them


STORAGES[TracedArray] = TracedStorage  # a layer over devices, as that of vmap: it is not registered as one


def _recorder() -> Recorder:
    recorder = recorder_of_thread()
    if recorder is None:
        raise RuntimeError("capture: a traced tensor was written where its recorder is off")
    return recorder


def _kernel(op: Any, storage: Any) -> Any:
    """The kernel for traced arrays. Only calls below the slow path meet it: the steps of a view (autograd/views.py).

    They are recorded like all others. After the recording, it computes on the real arrays.
    """
    if storage is not TracedStorage:
        return None

    def mapped(change: Any, value: Any) -> Any:
        if value.__class__ is list:
            return [mapped(change, v) for v in value]
        return change(value) if value.__class__ is TracedArray else value

    def kernel(*values: Any) -> Any:
        recorder = recorder_of_thread()
        if recorder is not None:
            return recorder.on_arrays(op, tuple(mapped(lambda array: share(array, None), v) for v in values))
        mapped(_refuse_while_active, list(values))
        found = [mapped(lambda array: array.real, v) for v in values]
        first = found[0][0] if found[0].__class__ is list else found[0]
        return op.compiled.kernels[first.__class__](*found)

    return kernel


def _refuse_while_active(array: TracedArray) -> None:
    if array.recorder.active:
        array.recorder.own_thread()


RULES["recorded"] = _kernel
