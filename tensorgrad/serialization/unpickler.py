"""Reads a pickle without running it: values are built from a table of names, and nothing else is ever called.

Python's own unpickler imports any name and calls it, which makes a checkpoint a program. This one is a small stack
machine. It implements the instructions that data needs, looks up every name in a table, and refuses
everything else by name. Building the values takes memory and time in proportion to the file: whatever costs more than
its bytes in the file is charged to a budget.

The instructions are described in Python's `pickletools`.
"""

from __future__ import annotations

import codecs
import struct
from collections import Counter, OrderedDict
from collections.abc import Callable
from pickle import UnpicklingError
from typing import Any, NoReturn

import numpy as np

from tensorgrad import devices, dtypes, layouts
from tensorgrad.nn.parameter import Buffer, Parameter
from tensorgrad.ops.pytorch.storage_values import TypedStorage, UntypedStorage
from tensorgrad.serialization.describe import described, problem
from tensorgrad.serialization.nested import JAGGED, Ignored, rebuild_jagged, rebuild_strided
from tensorgrad.serialization.sparse import rebuild as rebuild_sparse
from tensorgrad.serialization.tables import REBUILD, STORAGE_TYPES, NoPlace, named, set_state
from tensorgrad.size import Size
from tensorgrad.storage.stubs import Storage
from tensorgrad.tensor import Tensor

MARK = object()

# Memory in bytes. Values may take a fixed amount, and an amount for each byte that describes them. (As written by
# torch, 50,000 views of one tensor take 27 bytes for each byte of the file, in protocol 4 37; a million empty
# dicts 14 and 41.)
FREE, PER_BYTE = 8 << 20, 48
# What values take: empty containers, an element of each, a call, and a call that creates a tensor.
LIST, DICT, SET, TUPLE, MARKED, REMEMBERED, KEY = 64, 64, 224, 56, 48, 150, 200
IN_LIST, IN_DICT, IN_SET, IN_ORDERED = 8, 110, 90, 170
FIRST_IN_DICT, ATTRIBUTES = 120, 200
CALL, REBUILT, META = 150, 800, 1000
COPIED: dict[Any, int] = {dict: 150, OrderedDict: 150, tuple: 16, list: 16, Size: 16}  # per element, by a tensor

DIGITS, LONG = 4000, 1661  # of an integer: decimal digits, and bytes
NAME = 1000  # characters
HASHED = 64  # elements of a tuple used as a key, and different keys with the same hash


class Restricted:
    """Reads one pickle in `data`, starting at `start`; afterwards `end` is where it stopped.

    Args:
        persistent: Resolves a reference to something outside the pickle (a storage).
        allowed: Names that the caller trusts, in addition to those of the table: `"module.name"` -> object.
        outside: Bytes that the values may take in addition to the budget given by their description.

    Raises: UnpicklingError from `load` for everything that is not plain data, and for pickles that are cut short or
    damaged; RuntimeError if memory runs out.
    """

    encoding, errors = "utf-8", "strict"  # of Python 2's strings; with the encoding "bytes" they become bytes
    table: list[Callable[[Any], None]]  # a function for each instruction, filled in below

    def __init__(
        self,
        data,
        persistent: Callable[[Any], Any],
        allowed: dict[str, Any] | None = None,
        start: int = 0,
        outside: int = 0,
    ):
        self.data, self.at, self.end = memoryview(data), start, start
        self.persistent, self.allowed = persistent, allowed or {}
        self.trusted = {id(value) for value in self.allowed.values()}
        self.stack: list = []
        self.marks: list[int] = []  # their positions on the stack
        self.memo: list = []
        self.beyond: dict[int, Any] = {}  # values memoized out of order
        self.hashes: dict[int, list] = {}  # keys by their hash, for types whose hashes a file can choose
        self.held: dict[int, Storage] = {}  # the storages of the values
        self.copies: dict[tuple, tuple] = {}  # of sparse tensors' indices, by the memory that they were copied from
        self.taken, self.free = 0, FREE + outside - PER_BYTE * start

    def load(self):
        """Returns the value that the pickle describes."""
        try:
            return self._run()
        except (UnpicklingError, NoPlace):
            raise
        except MemoryError:
            raise RuntimeError("not enough memory for the values in the file") from None
        except Exception as error:  # a damaged file can trigger any of Python's errors
            raise UnpicklingError(f"the file is damaged or not a checkpoint ({problem(error)})") from error
        finally:  # break reference cycles: memoized values may refer to this object
            self.stack, self.memo, self.beyond, self.hashes, self.copies = [], [], {}, {}, {}

    def _run(self):
        data, stop, table = self.data, len(self.data), self.table
        while self.at < stop:
            instruction = data[self.at]
            self.at += 1
            if instruction == STOP:
                break
            table[instruction](self)
        else:
            self.read(1)
        self.end = self.at
        value = self.pop()
        if self.stack:
            raise UnpicklingError("the pickle leaves more than one value")
        return value

    def hold(self, storage: Storage, memory: int) -> None:
        """Charges a storage to the budget, only once. Raises: as `take`."""
        if id(storage) not in self.held:
            self.held[id(storage)] = storage
            self.take(memory)

    def take(self, memory: int) -> None:
        """Charges memory to the budget. Raises: UnpicklingError if that exceeds what has been read so far allows."""
        self.taken += memory
        if self.taken > self.free + PER_BYTE * self.at:
            raise UnpicklingError(
                f"the file needs too much memory: its values take {self.taken >> 20} MB or more, far "
                "out of proportion to its length (values copied repeatedly, or very many empty ones)"
            )

    # --- reading ---

    def read(self, n: int) -> memoryview:
        """Reads the next `n` bytes."""
        if n < 0 or self.at + n > len(self.data):
            raise UnpicklingError(f"the pickle ends in the middle: {n} more bytes expected at byte {self.at}")
        self.at += n
        return self.data[self.at - n : self.at]

    def byte(self) -> int:
        """Reads the next byte."""
        self.at += 1
        return self.data[self.at - 1]

    def number(self, form: struct.Struct) -> Any:
        """Reads a number."""
        self.at += form.size
        return form.unpack_from(self.data, self.at - form.size)[0]

    def line(self, most: int | None = None) -> bytes:
        """Reads up to the end of the line, at most `most` bytes."""
        begin, length = self.at, -1
        while length < 0:
            chunk = bytes(self.read(min(4096, max(1, len(self.data) - self.at))))
            length = chunk.find(10)
            if most is not None and self.at - begin - 4096 > most:
                break
        stop = self.at - len(chunk) + length
        if length < 0 or (most is not None and stop - begin > most):
            raise UnpicklingError(f"a line of more than {most:,} characters where a number or a name was expected")
        self.at = stop + 1
        return bytes(self.data[begin:stop])

    def text(self, form: struct.Struct) -> str:
        """Reads a string prefixed with its length."""
        return str(self.read(self.number(form)), "utf-8", "surrogatepass")

    def old_text(self, length: int) -> str | bytes:
        """Reads a string written by Python 2."""
        text = self.read(length)
        return bytes(text) if self.encoding == "bytes" else str(text, self.encoding, self.errors)

    # --- the stack ---

    def push(self, value) -> None:
        """Pushes a value onto the stack."""
        self.stack.append(value)

    def pop(self):
        """Pops the value from the top of the stack."""
        if not self.stack or self.stack[-1] is MARK:
            raise UnpicklingError("the pickle pops a value from an empty stack")
        return self.stack.pop()

    def top(self):
        """Returns the value on top of the stack."""
        if not self.stack or self.stack[-1] is MARK:
            raise UnpicklingError("the pickle modifies a value on an empty stack")
        return self.stack[-1]

    def mark(self) -> None:
        """Marks the beginning of a group of values."""
        self.take(MARKED)
        self.marks.append(len(self.stack))
        self.stack.append(MARK)

    def pop_mark(self) -> list:
        """Pops the values after the last mark."""
        if not self.marks:
            raise UnpicklingError("the pickle ends a group that it did not begin")
        at = self.marks.pop()
        items = self.stack[at + 1 :]
        del self.stack[at:]
        return items

    def put(self, key: int) -> None:
        """Memoizes the value on top of the stack."""
        value = self.top()
        if key == len(self.memo):
            self.memo.append(value)
        elif 0 <= key < len(self.memo):
            self.memo[key] = value
        else:
            self.take(REMEMBERED)
            self.beyond[key] = value

    def get(self, key: int) -> None:
        """Pushes a memoized value onto the stack."""
        if 0 <= key < len(self.memo):
            self.stack.append(self.memo[key])
        elif key in self.beyond:
            self.stack.append(self.beyond[key])
        else:
            raise UnpicklingError(f"the pickle refers to value {key}, which has not been defined yet")

    # --- containers ---

    def key(self, key, inside: bool = False):
        """Checks a dict key or set element. Raises: UnpicklingError if it might be slow to hash or compare."""
        kind = type(key)
        if kind is str or kind is bytes:
            if len(key) > 64:  # it may be compared with an equal one
                self.take(len(key) >> 3)
            return key
        if isinstance(key, PLAIN_KEYS) and not (isinstance(key, int) and not -(2**63) <= key < 2**63):
            if inside or kind not in (complex, devices.device):
                return key
        elif kind is tuple:
            self._count(key, HASHED)
        elif kind is not Ignored and not isinstance(key, int):
            raise UnpicklingError(f"{described(key)} is not allowed as a key")
        if inside:
            return key
        known = self.hashes.get(hash(key))
        if known is None:
            self.take(KEY)
            self.hashes[hash(key)] = [key]
        elif key not in known:
            if len(known) >= HASHED:
                raise UnpicklingError("the file has keys that were chosen to be slow")
            self.take(KEY)
            known.append(key)
        return key

    def _count(self, key: tuple, left: int, depth: int = 0) -> int:
        """The remaining number of elements that a key may have after this tuple."""
        for item in key:
            left -= 1
            if left < 0 or depth > 3:
                raise UnpicklingError(
                    f"a tuple of more than {HASHED} elements or deeper than 4 is not allowed as a key"
                )
            if type(item) is tuple:
                left = self._count(item, left, depth + 1)
            else:
                self.key(item, inside=True)
        return left

    def append(self, items: list) -> None:
        """Appends to the list on top of the stack."""
        target = self.top()
        if type(target) is list:
            target.extend(items)
        elif id(type(target)) in self.trusted:
            for item in items:
                target.append(item)
        else:
            raise UnpicklingError(f"the pickle appends to {described(target)}")

    def set_items(self, items: list) -> None:
        """Sets items of the dict on top of the stack."""
        target = self.top()
        if not isinstance(target, dict):
            raise UnpicklingError(f"the pickle sets items of {described(target)}")
        if len(items) % 2:
            raise UnpicklingError("the pickle sets a key without a value")
        each = IN_DICT if type(target) is dict else IN_ORDERED
        self.take(each * len(items) // 2 + FIRST_IN_DICT)
        for key, value in zip(items[::2], items[1::2]):
            target[self.key(key)] = value

    def add(self, items: list) -> None:
        """Adds to the set on top of the stack."""
        target = self.top()
        if type(target) is not set:
            raise UnpicklingError(f"the pickle adds to {described(target)}")
        self.take(IN_SET * len(items))
        target.update(map(self.key, items))

    # --- names and calls ---

    def find(self, module: str, name: str) -> None:
        """Pushes the object for a name onto the stack."""
        full = f"{module}.{name}"
        if full in self.allowed:
            self.stack.append(self.allowed[full])
        elif full in NAMES:
            self.stack.append(NAMES[full])
        else:
            self.unknown(full)

    def unknown(self, full: str) -> None:
        """Handles a name that is not in the table."""
        full = full[:NAME]
        raise UnpicklingError(
            f"Weights only load failed: the file refers to {full}, which is not among the names that plain data "
            f"needs, so it was refused and nothing was executed. If you trust the file and know the name, allow it "
            f"with torch.serialization.add_safe_globals([{full.rpartition('.')[2]}]); weights_only=False runs "
            f"any code that the file contains."
        )

    def call(self, function, args) -> None:
        """Pushes the result of a function onto the stack."""
        if not isinstance(args, tuple):
            raise UnpicklingError(f"the pickle calls {_called(function)} with {described(args)} as its arguments")
        if id(function) in self.trusted:
            self.stack.append(function(*args))
            return
        safe = CALLS.get(id(function))
        if safe is None:
            raise UnpicklingError(f"the file calls {_called(function)}, which was refused")
        self.stack.append(safe(self, *args))

    def new(self) -> None:
        """Pushes a new object of a class onto the stack."""
        args, cls = self.pop(), self.pop()
        if id(cls) in self.trusted and isinstance(cls, type) and isinstance(args, tuple):
            self.stack.append(cls.__new__(cls, *args))
        else:
            self.call(cls, args)

    def build(self) -> None:
        """Sets the state of the object on top of the stack."""
        state, target = self.pop(), self.top()
        if id(type(target)) in self.trusted:
            restore(target, state)
            return
        self.take(ATTRIBUTES + (len(state) * COPIED[dict] if isinstance(state, dict) else 0))
        if isinstance(target, OrderedDict) and isinstance(state, dict) and all(type(k) is str for k in state):
            target.__dict__.update(state)
        elif isinstance(target, Tensor):
            set_state(target, state)
        elif type(target) is Ignored:
            pass
        else:
            raise UnpicklingError(f"the pickle sets the state of {described(target)}, which was refused")

    def refer(self, reference):
        """Resolves a reference to something outside the pickle."""
        self.take(CALL)
        found = self.persistent(reference)
        if isinstance(found, UntypedStorage | TypedStorage):
            self.hold(found._storage, 0)
        return found


class Skim(Restricted):
    """Reads a pickle without building anything, to find the names and storages that it refers to.

    Its values are strings, numbers, tuples of these, and None for everything else.
    """

    errors = "surrogateescape"

    def __init__(self, data, persistent: Callable[[Any], Any], allowed: dict[str, Any] | None = None, start: int = 0):
        super().__init__(data, persistent, allowed, start)
        self.names: set[str] = set()  # names that are not in the table

    def unknown(self, full):
        """Records a name."""
        self.take(KEY + len(full))
        self.names.add(full)
        self.stack.append(None)

    def call(self, function, args):
        """Calls nothing; the result is None."""
        self.stack.append(None)

    def key(self, key, inside=False):
        """Accepts any key: it is not used."""
        return None

    def append(self, items):
        """Ignores the values."""

    set_items = add = append

    def new(self):
        """Creates nothing; the result is None."""
        self.pop()
        self.pop()
        self.stack.append(None)

    def build(self):
        """Ignores the state."""
        self.pop()

    def refer(self, reference):
        """Records a reference."""
        self.persistent(reference)


def restore(target, state) -> None:
    """Sets the state of an object of a trusted class, as pickle does."""
    if hasattr(target, "__setstate__"):
        target.__setstate__(state)
        return
    attributes, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    if attributes:
        target.__dict__.update(attributes)
    for name, value in (slots or {}).items():
        setattr(target, name, value)


def _called(function) -> str:
    name = getattr(function, "__name__", None)
    return name[:NAME] if type(name) is str else described(function)


# --- the table of names ----------------------------------------------------------------------------------------------

PLAIN_KEYS = (str, int, float, complex, bool, bytes, type(None), dtypes.dtype, devices.device)


def _set(m: Restricted, items=()):
    m.take(SET + IN_SET * len(_sequence(items)))
    return set(map(m.key, items))


def _counter(m: Restricted, items=()):
    items = items if isinstance(items, dict) else {}
    m.take(CALL + IN_DICT * len(items))
    return Counter({m.key(k): v for k, v in items.items()})


def _ordered(m: Restricted, items=()):
    pairs = items.items() if isinstance(items, dict) else _sequence(items)
    m.take(CALL + IN_ORDERED * len(pairs))
    return OrderedDict((m.key(k), v) for k, v in map(_pair, pairs))


def _pair(item) -> tuple:
    if type(item) not in (tuple, list) or len(item) != 2:
        raise UnpicklingError(f"expected a key and its value, but the file contains {described(item)}")
    return tuple(item)


def _sequence(items):
    if not isinstance(items, list | tuple):
        raise UnpicklingError(f"expected a list, but the file contains {described(items)}")
    return items


def _size(m: Restricted, sizes=()):
    m.take(CALL + IN_LIST * len(_sequence(sizes)))
    return Size(sizes)


def _encode(m: Restricted, text, encoding="utf-8"):
    texts = type(text) is str and type(encoding) is str
    if not texts or encoding not in ("latin1", "latin-1", "utf-8", "utf8", "ascii"):
        raise UnpicklingError(f"the file encodes {described(text)} as {described(encoding)}, which was refused")
    m.take(CALL + 4 * len(text))
    return codecs.encode(text, encoding)


def _bytearray(m: Restricted, content=b"", encoding="utf-8"):
    if type(content) not in (str, bytes, bytearray, list, tuple):
        raise UnpicklingError(f"a bytearray needs its bytes, but the file contains {described(content)}")
    m.take(CALL + IN_LIST * len(content))
    return bytearray(_encode(m, content, encoding) if isinstance(content, str) else content)


def _complex(m: Restricted, real, imag=0.0):
    if type(real) not in (int, float) or type(imag) not in (int, float):
        raise UnpicklingError(f"a complex number of {described(real)} and {described(imag)}")
    return complex(real, imag)


def _device(m: Restricted, kind, index=None):
    if type(kind) is not str or len(kind) > NAME or not (index is None or type(index) is int):
        raise UnpicklingError(f"a device named {described(kind)}, its index {described(index)}")
    m.take(CALL)
    return devices.device(kind, index)


def _sparse(m: Restricted, layout, data):
    """A sparse tensor. Its indices are copied: once, if several tensors have the same."""

    def copy(array):
        memory = array.ctypes.data, array.dtype, array.shape, array.strides
        if memory not in m.copies:
            m.take(REBUILT + array.nbytes)
            m.copies[memory] = array, np.array(array)
        return m.copies[memory][1]

    m.take(REBUILT)
    if isinstance(data, tuple):  # for the time that the checks take
        m.take(sum(part._array.nbytes // 8 for part in data if isinstance(part, Tensor)))
    return rebuild_sparse(layout, data, copy)


def _rebuilt(name: str, function: Callable) -> Callable:
    cost = META if "meta" in name else REBUILT

    def rebuild(m: Restricted, *args):
        m.take(cost + sum(len(a) * COPIED[type(a)] for a in args if type(a) in COPIED))
        made = function(*args)
        if isinstance(made, Tensor) and made.device.type != "meta" and made.layout is layouts.strided:
            m.hold(made._storage, made._storage.nbytes())  # a new storage, if conjugation or negation was computed
        return made

    return rebuild


def _nested(rebuild: Callable, each: int) -> Callable:
    """A function that makes a nested tensor. `each` is how many bytes it takes for a byte of sizes and offsets."""

    def nested(m: Restricted, *args: Any) -> Tensor:
        named_parts = args[0] if len(args) == 1 and isinstance(args[0], dict) else {}
        parts = [named_parts.get("offsets"), named_parts.get("lengths"), *args[1:]]
        m.take(REBUILT + sum(each * part._array.nbytes for part in parts if isinstance(part, Tensor)))
        return rebuild(*args)

    return nested


def _ignored(m: Restricted, *args: Any) -> Ignored:
    m.take(CALL)
    return Ignored()


_BUILTINS = {"set": (set, _set), "bytearray": (bytearray, _bytearray), "complex": (complex, _complex)}

NAMES: dict[str, Any] = {
    "collections.OrderedDict": OrderedDict,
    "collections.Counter": Counter,
    "_codecs.encode": codecs.encode,
    "torch.Size": Size,
    "torch.device": devices.device,
    "torch.Tensor": Tensor,
    "torch._tensor.Tensor": Tensor,
    "torch.nn.parameter.Parameter": Parameter,
    "torch.nn.parameter.Buffer": Buffer,
    f"{JAGGED}.NestedTensor": named(JAGGED, "NestedTensor"),
    "torch._dynamo.decorators._DimRange": Ignored,
    **{f"{module}.{name}": value for name, (value, _) in _BUILTINS.items() for module in ("builtins", "__builtin__")},
    **{f"torch.{name}": value for name, value in dtypes.BY_NAME.items()},
    **{f"torch.{value.name}": value for value in vars(layouts).values() if isinstance(value, layouts.memory_format)},
    **STORAGE_TYPES,
    **REBUILD,
}

# What a file may call, and the checked function that runs instead.
CALLS: dict[int, Callable] = {
    id(OrderedDict): _ordered,
    id(Counter): _counter,
    id(codecs.encode): _encode,
    id(Size): _size,
    id(devices.device): _device,
    id(Ignored): _ignored,
    **{id(value): checked for value, checked in _BUILTINS.values()},  # type: ignore[misc]
    **{id(function): _rebuilt(name, function) for name, function in REBUILD.items()},
    id(REBUILD["torch._utils._rebuild_sparse_tensor"]): _sparse,
    id(rebuild_strided): _nested(rebuild_strided, 6),
    id(rebuild_jagged): _nested(rebuild_jagged, 1),
}


# --- the instructions ------------------------------------------------------------------------------------------------

STOP = ord(".")
UINT8, UINT16, INT32, UINT32, UINT64, FLOAT64 = map(struct.Struct, ("B", "<H", "<i", "<I", "<Q", ">d"))


def _unsupported(m: Restricted) -> NoReturn:
    code = bytes(m.data[m.at - 1 : m.at])
    raise UnpicklingError(f"unsupported instruction {code!r} at byte {m.at - 1}")


def _long(m: Restricted, length: int) -> int:
    if length > LONG:
        raise UnpicklingError(f"an integer of {length:,} bytes")
    return int.from_bytes(m.read(length), "little", signed=True)


def _decimal(m: Restricted) -> int | bool:
    line = m.line(DIGITS)
    return line == b"01" if line in (b"00", b"01") else int(line.rstrip(b"L"))


def _tuple(m: Restricted, items: list) -> tuple:
    m.take(TUPLE + IN_LIST * len(items))
    return tuple(items)


def _fold(n: int) -> Callable[[Restricted], None]:
    def fold(m: Restricted) -> None:
        at = len(m.stack) - n
        if at < 0 or (m.marks and m.marks[-1] >= at):
            raise UnpicklingError("the pickle pops a value from an empty stack")
        m.stack[at:] = [_tuple(m, m.stack[at:])]

    return fold


def _list(m: Restricted, items: list) -> list:
    m.take(LIST + IN_LIST * len(items))
    return items


def _dict(m: Restricted, items: list) -> None:
    m.take(DICT)
    m.push({})
    m.set_items(items)


def _costs(memory: int, make: Callable[[], Any]) -> Callable[[Restricted], None]:
    def new(m: Restricted) -> None:
        m.take(memory)
        m.stack.append(make())

    return new


def _proto(m: Restricted) -> None:
    version = m.byte()
    if version > 5:
        raise UnpicklingError(f"unsupported pickle protocol {version}")


def _two_names(m: Restricted) -> None:
    name, module = m.pop(), m.pop()
    if type(name) is not str or type(module) is not str or len(name) + len(module) > 2 * NAME:
        raise UnpicklingError(f"invalid name: {described(module)}, {described(name)}")
    m.find(module, name)


def _reduce(m: Restricted) -> None:
    args, function = m.pop(), m.pop()
    m.call(function, args)


def _pop_one(m: Restricted) -> None:
    if not m.stack:
        raise UnpicklingError("the pickle pops a value from an empty stack")
    if m.stack.pop() is MARK:
        m.marks.pop()


def _one_pair(m: Restricted) -> None:
    value, key = m.pop(), m.pop()
    m.set_items([key, value])


def _one_item(m: Restricted) -> None:
    item = m.pop()
    m.append([item])


def _push(make: Callable[[Restricted], Any]) -> Callable[[Restricted], None]:
    return lambda m: m.stack.append(make(m))


INSTRUCTIONS: dict[str, Callable[[Restricted], None]] = {
    # values
    "N": _push(lambda m: None),
    "\x88": _push(lambda m: True),
    "\x89": _push(lambda m: False),
    "K": _push(lambda m: m.byte()),
    "M": _push(lambda m: m.number(UINT16)),
    "J": _push(lambda m: m.number(INT32)),
    "I": _push(_decimal),
    "L": _push(_decimal),
    "\x8a": _push(lambda m: _long(m, m.byte())),
    "\x8b": _push(lambda m: _long(m, m.number(UINT32))),
    "F": _push(lambda m: float(m.line(NAME))),
    "G": _push(lambda m: m.number(FLOAT64)),
    "X": _push(lambda m: m.text(UINT32)),
    "\x8c": _push(lambda m: m.text(UINT8)),
    "\x8d": _push(lambda m: m.text(UINT64)),
    "V": _push(lambda m: m.line().decode("raw-unicode-escape")),
    "U": _push(lambda m: m.old_text(m.byte())),
    "T": _push(lambda m: m.old_text(m.number(INT32))),
    "C": _push(lambda m: bytes(m.read(m.byte()))),
    "B": _push(lambda m: bytes(m.read(m.number(UINT32)))),
    "\x8e": _push(lambda m: bytes(m.read(m.number(UINT64)))),
    "\x96": _push(lambda m: bytearray(m.read(m.number(UINT64)))),
    # containers
    ")": _push(lambda m: ()),
    "]": _costs(LIST, list),
    "}": _costs(DICT, dict),
    "\x8f": _costs(SET, set),
    "(": lambda m: m.mark(),
    "t": _push(lambda m: _tuple(m, m.pop_mark())),
    "\x85": _fold(1),
    "\x86": _fold(2),
    "\x87": _fold(3),
    "l": _push(lambda m: _list(m, m.pop_mark())),
    "d": lambda m: _dict(m, m.pop_mark()),
    "\x91": _push(lambda m: frozenset(_set(m, m.pop_mark()))),
    "a": _one_item,
    "e": lambda m: m.append(m.pop_mark()),
    "s": _one_pair,
    "u": lambda m: m.set_items(m.pop_mark()),
    "\x90": lambda m: m.add(m.pop_mark()),
    # the stack and the memo
    "0": _pop_one,
    "1": lambda m: m.pop_mark().clear(),
    "2": _push(lambda m: m.top()),
    "p": lambda m: m.put(int(m.line(12))),
    "q": lambda m: m.put(m.byte()),
    "r": lambda m: m.put(m.number(UINT32)),
    "\x94": lambda m: m.put(len(m.memo) + len(m.beyond)),
    "g": lambda m: m.get(int(m.line(12))),
    "h": lambda m: m.get(m.byte()),
    "j": lambda m: m.get(m.number(UINT32)),
    # names and calls
    "c": lambda m: m.find(m.line(NAME).decode(), m.line(NAME).decode()),
    "\x93": _two_names,
    "R": _reduce,
    "\x81": lambda m: m.new(),
    "b": lambda m: m.build(),
    "Q": _push(lambda m: m.refer(m.pop())),
    # framing
    "\x80": _proto,
    "\x95": lambda m: m.number(UINT64) and None,
}
Restricted.table = [INSTRUCTIONS.get(chr(code), _unsupported) for code in range(256)]


def _skip_class(m: Restricted) -> None:
    m.line(NAME), m.line(NAME), m.pop_mark()
    m.push(None)


def _skip_call(m: Restricted) -> None:
    m.pop_mark()
    m.push(None)


def _skip_keywords(m: Restricted) -> None:
    m.pop()
    m.new()


# Instructions that plain data does not need; they are read to find the storages of a trusted file.
Skim.table = list(Restricted.table)
Skim.table[ord("i")], Skim.table[ord("o")], Skim.table[0x92] = _skip_class, _skip_call, _skip_keywords
Skim.table[ord("S")] = _push(lambda m: m.line().decode("latin1").strip("'\""))
