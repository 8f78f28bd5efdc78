"""Reads a pickle without running it: values are built from a table of names, and nothing else is ever called.

Python's own unpickler imports any name and calls it, which makes a checkpoint a program. This one is a small stack
machine. It knows the instructions that data need, looks every name up in a table that the caller gives, and refuses
everything else by name. What it builds costs memory in proportion to the file: whatever copies draws on a budget.

The instructions are described in Python's `pickletools`.
"""

from __future__ import annotations

import codecs
import struct
from collections import Counter, OrderedDict
from collections.abc import Callable
from pickle import UnpicklingError
from typing import Any

from tensorgrad import devices, dtypes, layouts
from tensorgrad.nn.parameter import Buffer, Parameter
from tensorgrad.serialization.tables import REBUILD, STORAGE_TYPES, NoPlace, set_state
from tensorgrad.size import Size
from tensorgrad.tensor import Tensor

MARK = object()
COPIED = (str, bytes, bytearray, list, tuple, set, dict)
PLAIN_KEYS = (str, int, float, complex, bool, bytes, type(None), dtypes.dtype, devices.device)


class Restricted:
    """One pickle in `data`, from `start`; `end` is then where it stopped.

    Args:
        persistent: what a reference to something outside of the pickle (a storage) means.
        allowed: names that the caller trusts, beside those of the table: `"module.name"` -> object.

    Raises: UnpicklingError from `load` for everything that is not plain data, and for what is cut short or garbled.
    """

    def __init__(self, data, persistent: Callable[[Any], Any], allowed: dict[str, Any] | None = None, start: int = 0):
        self.data, self.at, self.end = memoryview(data), start, start
        self.persistent, self.allowed = persistent, allowed or {}
        self.trusted = {id(value) for value in self.allowed.values()}
        self.stack: list = []
        self.memo: dict[int, Any] = {}
        self.budget = 64 * len(self.data) + 4096  # elements that calls in the file may copy

    def load(self):
        """The value that the pickle describes."""
        try:
            return self._run()
        except (UnpicklingError, NoPlace):
            raise
        except Exception as error:  # a garbled file meets every check that Python has
            problem = f"{type(error).__name__}: {error!s:.300}"
            raise UnpicklingError(f"the file is damaged or not a checkpoint ({problem})") from error

    def _run(self):
        while True:
            instruction = self._bytes(1)[0]
            if instruction == STOP:
                break
            handler = INSTRUCTIONS.get(instruction)
            if handler is None:
                raise UnpicklingError(f"unsupported instruction {bytes((instruction,))!r} at byte {self.at - 1}")
            handler(self)
        self.end = self.at
        value = self._pop()
        if self.stack:
            raise UnpicklingError("the pickle leaves more than one value")
        return value

    # --- reading ---

    def _bytes(self, n: int) -> memoryview:
        if n < 0 or self.at + n > len(self.data):
            raise UnpicklingError(f"the pickle ends in the middle: {n} more bytes expected at byte {self.at}")
        self.at += n
        return self.data[self.at - n : self.at]

    def _number(self, code: str) -> Any:
        return struct.unpack(code, self._bytes(struct.calcsize(code)))[0]

    def _line(self) -> str:
        end = self.at
        while end < len(self.data) and self.data[end] != 10:
            end += 1
        line = bytes(self._bytes(end - self.at)).decode()
        self._bytes(1)
        return line

    def _text(self, code: str) -> str:
        return bytes(self._bytes(self._number(code))).decode("utf-8", "surrogatepass")

    # --- the stack ---

    def _pop(self):
        if not self.stack or self.stack[-1] is MARK:
            raise UnpicklingError("the pickle takes a value that is not there")
        return self.stack.pop()

    def _top(self):
        if not self.stack or self.stack[-1] is MARK:
            raise UnpicklingError("the pickle changes a value that is not there")
        return self.stack[-1]

    def _pop_mark(self) -> list:
        for at in range(len(self.stack) - 1, -1, -1):
            if self.stack[at] is MARK:
                items = self.stack[at + 1 :]
                del self.stack[at:]
                return items
        raise UnpicklingError("the pickle closes what it did not open")

    def _put(self, key: int) -> None:
        self.memo[key] = self._top()

    def _get(self, key: int) -> None:
        if key not in self.memo:
            raise UnpicklingError(f"the pickle refers to value {key}, which it has not shown yet")
        self.stack.append(self.memo[key])

    # --- containers ---

    def _append(self, items) -> None:
        target = self._top()
        if type(target) is list:
            target.extend(items)
        elif id(type(target)) in self.trusted:
            for item in items:
                target.append(item)
        else:
            raise UnpicklingError(f"the pickle appends to a {type(target).__name__}")

    def _set_items(self, items) -> None:
        target = self._top()
        if not isinstance(target, dict):
            raise UnpicklingError(f"the pickle sets items of a {type(target).__name__}")
        if len(items) % 2:
            raise UnpicklingError("the pickle sets a key without a value")
        for key, value in zip(items[::2], items[1::2]):
            target[checked_key(key)] = value

    # --- names and calls ---

    def _find(self, module: str, name: str) -> None:
        full = f"{module}.{name}"
        if full in self.allowed:
            self.stack.append(self.allowed[full])
        elif full in NAMES:
            self.stack.append(NAMES[full])
        else:
            raise UnpicklingError(
                f"Weights only load failed: the file asks for {full}, which is not among the names that plain data "
                f"need, so it was refused and nothing was executed. If you trust the file and know the name, allow it "
                f"with torch.serialization.add_safe_globals([{name.partition('.')[0]}]); weights_only=False runs "
                f"whatever the file says."
            )

    def _call(self, function, args) -> Any:
        if not isinstance(args, tuple):
            raise UnpicklingError(f"the pickle calls {_called(function)} with a {type(args).__name__} as its arguments")
        if id(function) in self.trusted:
            return function(*args)
        safe = CALLS.get(id(function))
        if safe is None:
            raise UnpicklingError(f"the file calls {_called(function)}, which was refused")
        self.budget -= 1 + sum(len(a) for a in args if isinstance(a, COPIED))
        if self.budget < 0:
            raise UnpicklingError("the pickle copies values again and again, beyond what any checkpoint needs")
        return safe(*args)

    def _new(self) -> None:
        args, cls = self._pop(), self._pop()
        if id(cls) in self.trusted and isinstance(cls, type) and isinstance(args, tuple):
            self.stack.append(cls.__new__(cls, *args))
        else:
            self.stack.append(self._call(cls, args))

    def _build(self) -> None:
        state, target = self._pop(), self._top()
        if id(type(target)) in self.trusted:
            restore(target, state)
        elif isinstance(target, OrderedDict) and isinstance(state, dict) and all(type(k) is str for k in state):
            target.__dict__.update(state)
        elif isinstance(target, Tensor):
            set_state(target, state)
        else:
            raise UnpicklingError(f"the pickle sets the state of a {type(target).__name__}, which was refused")


def restore(target, state) -> None:
    """Gives an object of a trusted class its state, as pickle does."""
    if hasattr(target, "__setstate__"):
        target.__setstate__(state)
        return
    attributes, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    if attributes:
        target.__dict__.update(attributes)
    for name, value in (slots or {}).items():
        setattr(target, name, value)


def checked_key(key, depth: int = 0):
    """A key of a dict or an element of a set. Raises: UnpicklingError for what might be slow or deep to hash."""
    if isinstance(key, PLAIN_KEYS):
        return key
    if isinstance(key, tuple) and depth < 4 and len(key) <= 64:
        for item in key:
            checked_key(item, depth + 1)
        return key
    raise UnpicklingError(f"a {type(key).__name__} cannot be a key here")


def _called(function) -> str:
    return getattr(function, "__name__", None) or f"a {type(function).__name__}"


# --- the table of names ----------------------------------------------------------------------------------------------


def _set(items=()):
    return {checked_key(item) for item in _sequence(items)}


def _counter(items=()):
    return Counter({checked_key(k): v for k, v in items.items()} if isinstance(items, dict) else {})


def _ordered(items=()):
    return OrderedDict((checked_key(k), v) for k, v in (items.items() if isinstance(items, dict) else _sequence(items)))


def _sequence(items):
    if not isinstance(items, list | tuple):
        raise UnpicklingError(f"expected a list, but the file gives {type(items).__name__}")
    return items


def _encode(text, encoding="utf-8"):
    if encoding not in ("latin1", "latin-1", "utf-8", "utf8", "ascii"):
        raise UnpicklingError(f"the file asks for the encoding {encoding!r:.40}, which was refused")
    return codecs.encode(text, encoding)


def _bytearray(content=b"", encoding=None):
    if isinstance(content, int):
        raise UnpicklingError("a bytearray needs its bytes, not a length")
    return bytearray(_encode(content, encoding) if isinstance(content, str) else content)


def _complex(real, imag=0.0):
    return complex(float(real), float(imag))


def _device(*args):
    return devices.device(*args)


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
    **{f"{module}.{name}": value for name, (value, _) in _BUILTINS.items() for module in ("builtins", "__builtin__")},
    **{f"torch.{name}": value for name, value in dtypes.BY_NAME.items()},
    **{f"torch.{value.name}": value for value in vars(layouts).values() if isinstance(value, layouts.memory_format)},
    **STORAGE_TYPES,
    **REBUILD,
}

# What a file may call, and the checked function that then runs in its place.
CALLS: dict[int, Callable] = {
    id(OrderedDict): _ordered,
    id(Counter): _counter,
    id(codecs.encode): _encode,
    id(Size): lambda *sizes: Size(*map(_sequence, sizes)),
    id(devices.device): _device,
    **{id(value): checked for value, checked in _BUILTINS.values()},  # type: ignore[misc]
    **{id(function): function for function in REBUILD.values()},
}


# --- the instructions ------------------------------------------------------------------------------------------------

STOP = ord(".")


def _long(machine: Restricted, code: str) -> int:
    return int.from_bytes(machine._bytes(machine._number(code)), "little", signed=True)


def _decimal(machine: Restricted) -> int | bool:
    line = machine._line()
    if line in ("00", "01"):
        return line == "01"
    if len(line) > 4000:
        raise UnpicklingError("a number of more than 4,000 digits")
    return int(line.rstrip("L"))


def _fold(machine: Restricted, n: int) -> tuple:
    return tuple(reversed([machine._pop() for _ in range(n)]))


def _pairs(items: list) -> dict:
    return {checked_key(k): v for k, v in zip(items[::2], items[1::2])}


def _proto(m: Restricted) -> None:
    version = m._bytes(1)[0]
    if version > 5:
        raise UnpicklingError(f"unsupported pickle protocol {version}")


def _two_names(m: Restricted) -> None:
    name, module = m._pop(), m._pop()
    if type(name) is not str or type(module) is not str:
        raise UnpicklingError("a name that is not text")
    m._find(module, name)


def _reduce(m: Restricted) -> None:
    args, function = m._pop(), m._pop()
    m.stack.append(m._call(function, args))


def _pop_one(m: Restricted) -> None:
    if not m.stack:
        raise UnpicklingError("the pickle takes a value that is not there")
    m.stack.pop()


def _add_items(m: Restricted) -> None:
    items, target = m._pop_mark(), m._top()
    if type(target) is not set:
        raise UnpicklingError(f"the pickle adds to a {type(target).__name__}")
    target.update(checked_key(item) for item in items)


def _one_pair(m: Restricted) -> None:
    value, key = m._pop(), m._pop()
    m._set_items([key, value])


def _one_item(m: Restricted) -> None:
    item = m._pop()
    m._append([item])


def _push(make: Callable[[Restricted], Any]) -> Callable[[Restricted], None]:
    return lambda m: m.stack.append(make(m))


INSTRUCTIONS: dict[int, Callable[[Restricted], None]] = {
    ord(code): handler
    for code, handler in {
        # values
        "N": _push(lambda m: None),
        "\x88": _push(lambda m: True),
        "\x89": _push(lambda m: False),
        "K": _push(lambda m: m._number("<B")),
        "M": _push(lambda m: m._number("<H")),
        "J": _push(lambda m: m._number("<i")),
        "I": _push(_decimal),
        "L": _push(_decimal),
        "\x8a": _push(lambda m: _long(m, "<B")),
        "\x8b": _push(lambda m: _long(m, "<i")),
        "F": _push(lambda m: float(m._line())),
        "G": _push(lambda m: m._number(">d")),
        "X": _push(lambda m: m._text("<I")),
        "\x8c": _push(lambda m: m._text("<B")),
        "\x8d": _push(lambda m: m._text("<Q")),
        "V": _push(lambda m: m._line().encode().decode("raw-unicode-escape")),
        "U": _push(lambda m: bytes(m._bytes(m._number("<B"))).decode("utf-8")),  # Python 2's strings
        "T": _push(lambda m: bytes(m._bytes(m._number("<i"))).decode("utf-8")),
        "C": _push(lambda m: bytes(m._bytes(m._number("<B")))),
        "B": _push(lambda m: bytes(m._bytes(m._number("<I")))),
        "\x8e": _push(lambda m: bytes(m._bytes(m._number("<Q")))),
        "\x96": _push(lambda m: bytearray(m._bytes(m._number("<Q")))),
        # containers
        ")": _push(lambda m: ()),
        "]": _push(lambda m: []),
        "}": _push(lambda m: {}),
        "\x8f": _push(lambda m: set()),
        "(": _push(lambda m: MARK),
        "t": _push(lambda m: tuple(m._pop_mark())),
        "\x85": _push(lambda m: _fold(m, 1)),
        "\x86": _push(lambda m: _fold(m, 2)),
        "\x87": _push(lambda m: _fold(m, 3)),
        "l": _push(lambda m: m._pop_mark()),
        "d": _push(lambda m: _pairs(m._pop_mark())),
        "\x91": _push(lambda m: frozenset(_set(m._pop_mark()))),
        "a": _one_item,
        "e": lambda m: m._append(m._pop_mark()),
        "s": _one_pair,
        "u": lambda m: m._set_items(m._pop_mark()),
        "\x90": _add_items,
        # the stack and the memo
        "0": _pop_one,
        "1": lambda m: m._pop_mark() and None,
        "2": _push(lambda m: m._top()),
        "p": lambda m: m._put(int(m._line()[:12])),
        "q": lambda m: m._put(m._number("<B")),
        "r": lambda m: m._put(m._number("<I")),
        "\x94": lambda m: m._put(len(m.memo)),
        "g": lambda m: m._get(int(m._line()[:12])),
        "h": lambda m: m._get(m._number("<B")),
        "j": lambda m: m._get(m._number("<I")),
        # names and calls
        "c": lambda m: m._find(m._line(), m._line()),
        "\x93": _two_names,
        "R": _reduce,
        "\x81": lambda m: m._new(),
        "b": lambda m: m._build(),
        "Q": _push(lambda m: m.persistent(m._pop())),
        # framing
        "\x80": _proto,
        "\x95": lambda m: m._number("<Q") and None,
    }.items()
}
