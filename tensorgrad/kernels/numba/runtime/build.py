"""Compiles one kernel to an object file: its loop with Numba, and an entry that unpacks arguments from Python objects.

A kernel that does not write to an array may ask for its memory instead (`MEMORY` in language.py): it then gets a row
that begins at the array's first element, whatever its shape and strides, and walks through it by numbers of its own.

This runs in the process that compiles. The entry calls Python's C API and reads NumPy's arrays in place. Every name it
uses is resolved when the object is loaded (native.py), so the program itself does not need Numba.

There are three kinds of entry. "shared": launch(_, arguments, length, mailbox, workers) for a kernel whose ranges are
shared among threads (launch.py); "plain": a Python function with the kernel's own arguments; "native": a C function of
numbers.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from tensorgrad.kernels.numba.runtime import internals, native
from tensorgrad.kernels.numba.runtime.mailbox import ARGUMENTS, DIVIDE, SIZE

_I8, _I32, _I64, _DOUBLE = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.DoubleType()
_POINTER, _VOID = _I8.as_pointer(), ir.VoidType()
_ROOM = 8 * (SIZE - ARGUMENTS)  # bytes of a mailbox for arguments
_HEAD = object.__basicsize__
_HEADER = 64  # bytes before the data of an array that a kernel allocates
_ENDLESS = 1 << 56  # elements of an array of which only the address is known
_LINE = 64  # bytes of a cache line: a register as long would otherwise be read from two
_SIGNATURES = {
    "PyBool_FromLong": (_POINTER, _I64), "PyBytes_FromStringAndSize": (_POINTER, _POINTER, _I64),
    "PyErr_Clear": (_VOID,), "PyErr_Occurred": (_POINTER,), "PyErr_SetString": (_VOID, _POINTER, _POINTER),
    "PyEval_RestoreThread": (_VOID, _POINTER), "PyEval_SaveThread": (_POINTER,),
    "PyFloat_AsDouble": (_DOUBLE, _POINTER), "PyLong_AsLongLong": (_I64, _POINTER),
    "PyLong_AsUnsignedLongLong": (_I64, _POINTER), "PyLong_FromLongLong": (_POINTER, _I64),
    "PyMem_RawFree": (_VOID, _POINTER), "PyMem_RawMalloc": (_POINTER, _I64), "PyNumber_Index": (_POINTER, _POINTER),
    "PyObject_CallObject": (_POINTER, _POINTER, _POINTER), "PyObject_IsInstance": (_I32, _POINTER, _POINTER),
    "PyObject_IsTrue": (_I32, _POINTER), "PyTuple_GetItem": (_POINTER, _POINTER, _I64),
    "PyTuple_New": (_POINTER, _I64), "PyTuple_SetItem": (_I32, _POINTER, _POINTER, _I64),
    "PyTuple_Size": (_I64, _POINTER), "Py_DecRef": (_VOID, _POINTER), "Py_IncRef": (_VOID, _POINTER),
}  # fmt: skip
_SIGNATURES["PyTuple_SetItem"] = (_I32, _POINTER, _I64, _POINTER)


def _i64(number: int) -> Any:
    return ir.Constant(_I64, number)


class _Entry:
    """The LLVM module of an entry under construction."""

    def __init__(self, compiled: internals.Compiled, name: str, entry: str):
        self.compiled, self.name, self.entry = compiled, name, entry
        self.module = ir.Module(f"{entry}.entry")
        self.module.triple = internals.triple()
        self.kernel = compiled.declare(self.module)
        self.builder: Any = None
        self.refused: Any = None

    # --- Python objects ---

    def call(self, name: str, *given: Any) -> Any:
        back, *kinds = _SIGNATURES[name]
        kind = ir.FunctionType(back, kinds)
        return self.builder.call(internals.declared(self.module, kind, native.PREFIX + name), given)

    def object(self, name: str) -> Any:
        return internals.declared(self.module, ir.FunctionType(_VOID, []), native.PREFIX + name).bitcast(_POINTER)

    def text(self, text: str) -> Any:
        constant = ir.Constant(ir.ArrayType(_I8, len(text.encode()) + 1), bytearray(text.encode() + b"\0"))
        held = ir.GlobalVariable(self.module, constant.type, f"{self.entry}.text")
        held.linkage, held.global_constant, held.initializer = "internal", True, constant
        return self.builder.bitcast(held, _POINTER)

    def require(self, condition: Any) -> None:
        """Continues only if the condition is true; otherwise the arguments are refused."""
        on = self.builder.append_basic_block()
        self.builder.cbranch(condition, on, self.refused)
        self.builder.position_at_end(on)

    def load(self, pointer: Any, offset: int, kind: Any) -> Any:
        place = self.builder.gep(pointer, [_i64(offset)])
        return self.builder.load(self.builder.bitcast(place, kind.as_pointer()))

    def no_error(self, suspicious: Any) -> None:
        """Refuses the arguments if a suspicious result is an error: it is a plain number unless Python has one set."""
        builder = self.builder
        with builder.if_then(suspicious, likely=False):
            error = builder.icmp_unsigned("!=", self.call("PyErr_Occurred"), ir.Constant(_POINTER, None))
            on = builder.append_basic_block()
            builder.cbranch(error, self.refused, on)
            builder.position_at_end(on)

    def leaves(self, kind: Any, given: Any) -> list[Any]:
        """Unpacks an object into the numbers that a kernel needs for an argument; anything unexpected is refused."""
        builder = self.builder
        if isinstance(kind, types.BaseTuple):
            self.require(builder.icmp_signed("==", self.call("PyTuple_Size", given), _i64(len(kind.types))))
            return [
                leaf
                for n, inside in enumerate(kind.types)
                for leaf in self.leaves(inside, self.call("PyTuple_GetItem", given, _i64(n)))
            ]
        if isinstance(kind, types.Array):
            return self.leaves_of_array(kind, given)
        if isinstance(kind, types.Boolean):
            truth = self.call("PyObject_IsTrue", given)
            self.require(builder.icmp_signed(">=", truth, ir.Constant(_I32, 0)))
            return [builder.zext(truth, _I64)]
        if isinstance(kind, types.Float):
            number = self.call("PyFloat_AsDouble", given)
            self.no_error(builder.fcmp_ordered("==", number, ir.Constant(_DOUBLE, -1.0)))
            return [number]
        if kind not in (types.int64, types.uint64):
            raise TypeError(f"{self.name}: kernels cannot take arguments of type {kind}")
        index = self.call("PyNumber_Index", given)
        self.require(builder.icmp_unsigned("!=", index, ir.Constant(_POINTER, None)))
        number = self.call("PyLong_AsLongLong" if kind.signed else "PyLong_AsUnsignedLongLong", index)
        self.call("Py_DecRef", index)
        self.no_error(builder.icmp_signed("==", number, _i64(-1)))
        return [number]

    def leaves_of_array(self, kind: Any, given: Any) -> list[Any]:
        builder = self.builder
        letter = {types.Boolean: "b", types.Float: "f"}.get(type(kind.dtype)) or ("i" if kind.dtype.signed else "u")
        is_array = self.call("PyObject_IsInstance", given, self.object("ndarray"))
        self.require(builder.icmp_signed("==", is_array, ir.Constant(_I32, 1)))
        if kind.mutable:
            dims = self.load(given, _HEAD + 8, _I32)
            self.require(builder.icmp_signed("==", dims, ir.Constant(_I32, kind.ndim)))
        dtype = self.load(given, _HEAD + 40, _POINTER)
        order = self.load(dtype, _HEAD + 10, _I8)
        foreign = ">" if sys.byteorder == "little" else "<"
        native_order = builder.icmp_unsigned("!=", order, ir.Constant(_I8, ord(foreign)))
        same = builder.icmp_unsigned("==", self.load(dtype, _HEAD + 8, _I8), ir.Constant(_I8, ord(letter)))
        size = _i64(self.compiled.itemsize(kind))
        same = builder.and_(same, builder.icmp_signed("==", self.load(dtype, _HEAD + 24, _I64), size))
        self.require(builder.and_(same, native_order))
        mask = ir.Constant(_I32, 0x100 | (0x400 | (kind.layout == "C") if kind.mutable else 0))
        flags = self.load(given, _HEAD + 48, _I32)
        self.require(builder.icmp_unsigned("==", builder.and_(flags, mask), mask))
        if not kind.mutable:
            return [self.load(given, _HEAD, _I64), _i64(_ENDLESS), size]
        shape, strides = (self.load(given, _HEAD + at, _POINTER) for at in (16, 24))
        return [
            self.load(given, _HEAD, _I64),
            *(self.load(shape, 8 * d, _I64) for d in range(kind.ndim)),
            *(self.load(strides, 8 * d, _I64) for d in range(kind.ndim)),
        ]

    # --- the kernel's arguments ---

    def value(self, kind: Any, leaves: Any) -> Any:
        """Builds an argument for Numba's functions from its numbers, consuming as many as it needs.

        References to its arrays are not counted: the caller keeps them alive.
        """
        builder = self.builder
        if isinstance(kind, types.BaseTuple):
            return self.compiled.tuple_of(builder, kind, [self.value(inside, leaves) for inside in kind.types])
        if isinstance(kind, types.Array):
            address = next(leaves)
            shape = [next(leaves) for _ in range(kind.ndim)]
            strides = [next(leaves) for _ in range(kind.ndim)]
            return self.compiled.array_at(builder, kind, address, shape, strides)
        leaf = next(leaves)
        if isinstance(kind, types.Boolean):
            return builder.icmp_signed("!=", leaf, _i64(0))
        if isinstance(kind, types.Float):
            leaf = builder.bitcast(leaf, _DOUBLE)
            return leaf if kind.bitwidth == 64 else builder.fptrunc(leaf, ir.FloatType())
        return leaf

    def begin(self, kind: Any, name: str, internal: bool = True) -> Any:
        function = ir.Function(self.module, kind, name)
        function.linkage = "internal" if internal else "external"
        self.builder = ir.IRBuilder(function.append_basic_block())
        return function

    def called(self, values: list[Any]) -> tuple[Any, Any, Any]:
        return self.compiled.call(self.builder, self.kernel, values)

    def work(self, kinds: Any) -> Any:
        """work(place, first, last, error): runs a range on the arguments at `place`; stores an error at `error`."""
        function = self.begin(ir.FunctionType(_I64, [_I64] * 4), f"{self.entry}.work")
        place, first, last, error = function.args
        values = self.values(place, kinds)
        failed, why, _ = self.called([*values, first, last])
        self.report(failed, why, self.builder.inttoptr(error, _POINTER.as_pointer()))
        return function

    def values(self, place: Any, kinds: Any) -> list[Any]:
        builder = self.builder
        pointer = builder.inttoptr(place, _I64.as_pointer())
        leaves = (builder.load(builder.gep(pointer, [_i64(n)])) for n in range(self.count(kinds)))
        return [self.value(kind, leaves) for kind in kinds]

    def count(self, kinds: Any) -> int:
        """Returns how many numbers arguments of these types take."""
        return sum(
            self.count(kind.types)
            if isinstance(kind, types.BaseTuple)
            else 1 + 2 * kind.ndim
            if isinstance(kind, types.Array)
            else 1
            for kind in kinds
        )

    def report(self, failed: Any, why: Any, error: Any) -> None:
        """Returns whether the kernel failed, storing Numba's description of the error."""
        builder = self.builder
        builder.store(builder.bitcast(why, _POINTER), error)
        builder.ret(builder.zext(failed, _I64))

    def held(self, kinds: Any, objects: list[Any]) -> Any:
        """Allocates memory for the arguments and stores their numbers."""
        builder = self.builder
        count = self.count(kinds)
        with builder.goto_entry_block():
            memory = builder.alloca(_I64, size=max(count, 1))
        at = 0
        for kind, given in zip(kinds, objects, strict=True):
            for leaf in self.leaves(kind, given):
                if leaf.type == _DOUBLE:
                    leaf = builder.bitcast(leaf, _I64)
                builder.store(leaf, builder.gep(memory, [_i64(at)]))
                at += 1
        return memory

    def raised(self, error: Any) -> None:
        """Raises the error that a kernel has stored, and returns."""
        builder = self.builder
        data = self.load(error, 0, _POINTER)
        size = builder.sext(self.load(error, 8, _I32), _I64)
        given = self.call("PyTuple_New", _i64(1))
        self.call("PyTuple_SetItem", given, _i64(0), self.call("PyBytes_FromStringAndSize", data, size))
        self.call("PyObject_CallObject", self.object("raise"), given)
        self.call("Py_DecRef", given)
        builder.ret(ir.Constant(_POINTER, None))

    def python(self) -> tuple[Any, Callable[[int], Any]]:
        """Begins a Python function. Returns the number of arguments, and a function that loads one of them."""
        kind = ir.FunctionType(_POINTER, [_POINTER, _POINTER.as_pointer(), _I64])
        function = self.begin(kind, self.entry, internal=False)
        first = self.builder
        self.refused = function.append_basic_block("refused")
        self.builder = ir.IRBuilder(self.refused)
        self.call("PyErr_Clear")
        message = self.text(f"No matching definition for the arguments of the compiled kernel {self.name}")
        self.call("PyErr_SetString", self.object("TypeError"), message)
        self.builder.ret(ir.Constant(_POINTER, None))
        self.builder = first
        given = function.args[1]
        return function.args[2], lambda n: self.builder.load(self.builder.gep(given, [_i64(n)]))

    # --- the three kinds of entry ---

    def shared(self) -> None:
        kinds = self.compiled.takes[:-2]
        if 8 * self.count(kinds) > _ROOM:
            raise ValueError(f"the kernel's arguments take {8 * self.count(kinds)} bytes, more than {_ROOM}")
        work = self.work(kinds)
        part = self.begin(ir.FunctionType(_I64, [_I64] * 3), f"{self.entry}.range")  # what threads call
        place, first, last = part.args
        ignored = self.builder.ptrtoint(self.builder.alloca(_POINTER), _I64)
        start = self.builder.add(place, _i64(8 * ARGUMENTS))
        self.builder.ret(self.builder.call(work, [start, first, last, ignored]))

        count, argument = self.python()
        builder = self.builder
        self.require(builder.icmp_signed("==", count, _i64(5)))
        tuple_given = argument(1)
        self.require(builder.icmp_signed("==", self.call("PyTuple_Size", tuple_given), _i64(len(kinds))))
        objects = [self.call("PyTuple_GetItem", tuple_given, _i64(n)) for n in range(len(kinds))]
        memory = self.held(kinds, objects)
        last, mailbox, workers = (self.leaves(types.int64, argument(n))[0] for n in (2, 3, 4))
        with builder.goto_entry_block():
            error = builder.alloca(_POINTER)
        thread = self.call("PyEval_SaveThread")
        many = builder.icmp_signed("!=", workers, _i64(0))
        with builder.if_else(many) as (together, alone):
            with together:
                to = builder.inttoptr(builder.add(mailbox, _i64(8 * ARGUMENTS)), _I64.as_pointer())
                for n in range(self.count(kinds)):
                    builder.store(builder.load(builder.gep(memory, [_i64(n)])), builder.gep(to, [_i64(n)]))
                slot = builder.inttoptr(builder.add(mailbox, _i64(8 * DIVIDE)), _I64.as_pointer())
                divide = builder.inttoptr(builder.load(slot), ir.FunctionType(_I64, [_I64] * 4).as_pointer())
                happened = builder.call(divide, [builder.ptrtoint(part, _I64), mailbox, last, workers])
                after_together = builder.block
            with alone:
                place = builder.ptrtoint(memory, _I64)
                failed = builder.call(work, [place, _i64(0), last, builder.ptrtoint(error, _I64)])
                after_alone = builder.block
        result, wrong = builder.phi(_I64), builder.phi(_I64)
        result.add_incoming(happened, after_together)
        result.add_incoming(_i64(0), after_alone)
        wrong.add_incoming(_i64(0), after_together)
        wrong.add_incoming(failed, after_alone)
        self.call("PyEval_RestoreThread", thread)
        with builder.if_then(builder.icmp_signed("!=", wrong, _i64(0)), likely=False):
            self.fail(error)
        builder.ret(self.call("PyLong_FromLongLong", result))

    def fail(self, error: Any) -> None:
        """Emits `raised` as the end of a block that others follow."""
        self.raised(self.builder.load(error))

    def plain(self) -> None:
        kinds, back = self.compiled.takes, self.compiled.returns
        count, argument = self.python()
        builder = self.builder
        self.require(builder.icmp_signed("==", count, _i64(len(kinds))))
        memory = self.held(kinds, [argument(n) for n in range(len(kinds))])
        thread = self.call("PyEval_SaveThread")
        failed, why, result = self.called(self.values(builder.ptrtoint(memory, _I64), kinds))
        self.call("PyEval_RestoreThread", thread)
        with builder.if_then(failed, likely=False):
            self.raised(builder.bitcast(why, _POINTER))
        if back == types.none:
            self.call("Py_IncRef", self.object("None"))
            builder.ret(self.object("None"))
        elif back == types.boolean:
            builder.ret(self.call("PyBool_FromLong", builder.zext(result, _I64)))
        else:
            builder.ret(self.call("PyLong_FromLongLong", result))

    def native(self) -> None:
        kinds = self.compiled.takes
        function = self.begin(ir.FunctionType(_I64, [_I64] * len(kinds)), self.entry, internal=False)
        self.builder.ret(self.called(list(function.args))[2])

    # --- functions that Numba's code calls ---

    def reshape(self) -> None:
        """Computes the strides of a contiguous array in another shape; Numba needs this for no other arrays."""
        words = _I64.as_pointer()
        kind = ir.FunctionType(_I32, [_I64, words, words, _I64, words, words, _I64, _I32])
        function = self.begin(kind, "numba_attempt_nocopy_reshape", internal=False)
        builder, (_, _, _, count, shape, strides, itemsize, _) = self.builder, function.args
        step = builder.alloca(_I64)
        builder.store(itemsize, step)
        with internals.counted(builder, count) as turn:
            at = builder.sub(builder.sub(count, _i64(1)), turn)
            builder.store(builder.load(step), builder.gep(strides, [at]))
            builder.store(builder.mul(builder.load(step), builder.load(builder.gep(shape, [at]))), step)
        builder.ret(ir.Constant(_I32, 1))

    def memory(self) -> None:
        """Defines the two functions with which kernels allocate and free their own arrays."""
        function = self.begin(ir.FunctionType(_POINTER, [_I64, _I32]), "NRT_MemInfo_alloc_aligned", internal=False)
        builder, (size, align) = self.builder, function.args
        align = builder.zext(align, _I64)
        align = builder.select(builder.icmp_unsigned(">", align, _i64(_LINE)), align, _i64(_LINE))
        space = self.call("PyMem_RawMalloc", builder.add(builder.add(size, align), _i64(_HEADER)))
        with builder.if_then(builder.icmp_unsigned("==", space, ir.Constant(_POINTER, None)), likely=False):
            builder.ret(space)
        end = builder.add(builder.ptrtoint(space, _I64), builder.add(align, _i64(_HEADER - 1)))
        data = builder.and_(end, builder.neg(align))
        words = builder.bitcast(space, _I64.as_pointer())
        for n, word in enumerate((_i64(1), _i64(0), _i64(0), data, size, _i64(0))):  # Numba's own layout
            builder.store(word, builder.gep(words, [_i64(n)]))
        builder.ret(space)
        function = self.begin(ir.FunctionType(_VOID, [_POINTER]), "NRT_MemInfo_call_dtor", internal=False)
        self.call("PyMem_RawFree", function.args[0])
        self.builder.ret_void()

    def counting(self) -> None:
        """Defines how references to a kernel's own arrays are counted; other arrays have no counter.

        Only one thread sees these arrays. Numba's functions count with atomic instructions, which wait until all that
        was stored before is in the cache: a tenth of a matrix product's time.
        """
        for name, change in (("NRT_incref", 1), ("NRT_decref", -1)):
            function = self.begin(ir.FunctionType(_VOID, [_POINTER]), name, internal=False)
            function.attributes.add("noinline")  # Numba removes pairs of calls
            builder, (array,) = self.builder, function.args
            with builder.if_then(builder.icmp_unsigned("!=", array, ir.Constant(_POINTER, None))):
                counter = builder.bitcast(array, _I64.as_pointer())
                left = builder.add(builder.load(counter), _i64(change))
                builder.store(left, counter)
                if change < 0:
                    with builder.if_then(builder.icmp_signed("==", left, _i64(0)), likely=False):
                        free = ir.FunctionType(_VOID, [_POINTER])
                        builder.call(internals.declared(self.module, free, "NRT_MemInfo_call_dtor"), [array])
            builder.ret_void()


def undefined(data: bytes) -> list[str]:
    """Returns the names that an object file (ELF, 64 bits) uses but does not define."""
    if data[:5] != b"\x7fELF\x02":
        return []
    (table,), (size, count, _) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<HHH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + n * size) for n in range(count)]
    names = []
    for _, kind, _, _, offset, length, link, *_ in sections:
        if kind == 2:  # a symbol table
            for at in range(offset + 24, offset + length, 24):
                name, _, _, section, _, _ = struct.unpack_from("<IBBHQQ", data, at)
                if section == 0:
                    start = sections[link][4] + name
                    names.append(data[start : data.index(b"\0", start)].decode())
    return sorted(names)


def built(function: Callable, signature: str, kind: str, entry: str, **options: Any) -> tuple[bytes, list[str]]:
    """Returns a kernel's object file and the names it needs. `signature` is "void(float32[::1], ..., int64, int64)"."""
    compiled = internals.Compiled(
        function, signature, {"error_model": "numpy", "nogil": True, "fastmath": {"contract"}} | options
    )
    writing = _Entry(compiled, function.__name__, entry)
    getattr(writing, kind)()
    writing.memory()
    writing.counting()
    writing.reshape()
    data, declared = compiled.linked(writing.module, entry, *native.cpu())
    return data, undefined(data) or sorted({*declared, "memcpy", "memmove", "memset"})
