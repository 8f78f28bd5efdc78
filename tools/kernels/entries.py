"""Compiles one kernel to an object file: its loop with Numba, and an entry that takes its arguments as numbers.

A kernel that does not write to an array may ask for its memory instead (`MEMORY` in language.py): it then gets a row
that begins at the array's first element, whatever its shape and strides, and walks through it by numbers of its own. Of
a row-major array of any shape and dtype it may also ask for the memory in words of two bytes (`STORED`).

All kernels are called through one compiled launcher. It unpacks Python's objects with Python's C API, and reads NumPy's
arrays in place. Every name that it uses is resolved when it is loaded (native.py), so the program itself does not need
Numba.

Windows calls functions in its own way, which LLVM knows as a property of a function. So one file of a processor serves
all systems: the launcher's functions are there in both ways, and what is imported is called through functions that call
it as Windows does. Everything in between has the one way of the other systems.

There are three kinds of kernels. "shared": its ranges are shared among threads (launch.py); "plain": called with all
its arguments by one thread; "native": a C function of numbers. The first two are known by a record, the constant that
their object exports: the address of the code, the size of its arguments, and how to unpack them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from tensorgrad.kernels.compiled.runtime import native
from tensorgrad.kernels.compiled.runtime.mailbox import ARGUMENTS, DIVIDE, SIZE
from tools.kernels import internals

_I8, _I32, _I64, _DOUBLE = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.DoubleType()
_POINTER, _WORDS, _VOID = _I8.as_pointer(), _I64.as_pointer(), ir.VoidType()
_ROOM = 8 * (SIZE - ARGUMENTS)  # bytes of a mailbox for arguments
_HEAD = native.HEAD
_WINDOWS = "win64cc"  # LLVM's name for how Windows calls functions
_HEADER = 64  # bytes before the data of an array that a kernel allocates
_ENDLESS = 1 << 56  # elements of an array of which only the address is known
_LINE = 64  # bytes of a cache line: a register as long would otherwise be read from two
_SIGNATURES = {
    "PyBool_FromLong": (_POINTER, _I64), "PyBytes_FromStringAndSize": (_POINTER, _POINTER, _I64),
    "PyDict_GetItemWithError": (_POINTER, _POINTER, _POINTER),
    "PyDict_Next": (_I32, _POINTER, _WORDS, _WORDS, _WORDS), "PyErr_Clear": (_VOID,),
    "PyErr_Occurred": (_POINTER,), "PyErr_SetString": (_VOID, _POINTER, _POINTER),
    "PyEval_RestoreThread": (_VOID, _POINTER), "PyEval_SaveThread": (_POINTER,),
    "PyFloat_AsDouble": (_DOUBLE, _POINTER), "PyLong_AsLongLong": (_I64, _POINTER),
    "PyLong_AsUnsignedLongLong": (_I64, _POINTER), "PyLong_FromLongLong": (_POINTER, _I64),
    "PyMem_RawFree": (_VOID, _POINTER), "PyMem_RawMalloc": (_POINTER, _I64), "PyNumber_Index": (_POINTER, _POINTER),
    "PyObject_CallObject": (_POINTER, _POINTER, _POINTER), "PyObject_IsInstance": (_I32, _POINTER, _POINTER),
    "PyObject_IsTrue": (_I32, _POINTER), "PyTuple_GetItem": (_POINTER, _POINTER, _I64),
    "PyTuple_New": (_POINTER, _I64), "PyTuple_SetItem": (_I32, _POINTER, _I64, _POINTER),
    "PyTuple_Size": (_I64, _POINTER), "Py_DecRef": (_VOID, _POINTER), "Py_IncRef": (_VOID, _POINTER),
    "memcpy": (_POINTER, _POINTER, _POINTER, _I64), "memmove": (_POINTER, _POINTER, _POINTER, _I64),
    "memset": (_POINTER, _POINTER, _I32, _I64),
}  # fmt: skip

# A record, in words: the address of the code, the address of the text for arguments that do not fit, the number of
# arguments, of the numbers that they are unpacked to, and what is returned; then four words for each argument.
_CODE, _TEXT, _TAKES, _NUMBERS, _RETURNS, _KINDS = range(6)
_NONE, _BOOL, _NUMBER = range(3)  # what is returned
# The four words of an argument: its kind, and for a tuple its length (the words of its items follow); for an array its
# dimensions (or one of the two below), its dtype (size and letter; 0 for any), and the flags that it must have.
_MEMORY, _STORED = -1, -2  # its memory alone, without an end, or in words of two bytes
_TUPLE, _TRUTH, _FLOAT, _SIGNED, _UNSIGNED, _ARRAY = range(6)
_ALIGNED, _WRITEABLE, _ROW_MAJOR = 0x100, 0x400, 0x1  # NumPy's flags
# A kernel's code: the address of its numbers, first, last (or where the result goes).
_RUN = ir.FunctionType(_I64, [_I64] * 3)


def _i64(number: int) -> Any:
    return ir.Constant(_I64, number)


class _Module:
    """An LLVM module under construction."""

    def __init__(self, entry: str):
        self.entry = entry
        self.module = ir.Module(f"{entry}.entry")
        self.module.triple = internals.triple()
        self.builder: Any = None
        self.refused: Any = None

    def begin(self, kind: Any, name: str, internal: bool = True) -> Any:
        function = ir.Function(self.module, kind, name)
        function.linkage = "internal" if internal else "external"
        internals.keep_to_stack(function)
        self.builder = ir.IRBuilder(function.append_basic_block())
        return function

    def call(self, name: str, *given: Any) -> Any:
        back, *kinds = _SIGNATURES[name]
        kind = ir.FunctionType(back, kinds)
        return self.builder.call(internals.declared(self.module, kind, native.PREFIX + name), given)

    def constant(self, name: str, value: Any, internal: bool = True) -> Any:
        held = ir.GlobalVariable(self.module, value.type, name)
        held.linkage = "internal" if internal else ""
        held.global_constant, held.initializer = True, value
        return held

    def calling_as_windows(self, name: str) -> Any:
        """Returns a function that passes its arguments on to an imported one, which is called as Windows does."""
        back, *takes = _SIGNATURES[name.removeprefix(native.PREFIX)]
        function = self.begin(ir.FunctionType(back, takes), f"{self.entry}.{name}")
        imported = internals.declared(self.module, function.ftype, name)
        imported.calling_convention = _WINDOWS
        result = self.builder.call(imported, function.args)
        self.builder.ret_void() if back == _VOID else self.builder.ret(result)
        return function

    def for_windows(self, function: Any) -> Any:
        """Returns a function that does the same, and is called as Windows does."""
        function.attributes.add("noinline")
        other = self.begin(function.ftype, f"{function.name}.windows")
        other.calling_convention = _WINDOWS
        self.builder.ret(self.builder.call(function, other.args))
        return other

    def of_addresses(self, functions: list[Any]) -> bytes:
        """Returns the module's object file, whose entry is the addresses of these functions."""
        words = [function.ptrtoint(_I64) for function in functions]
        self.constant(self.entry, ir.Constant(ir.ArrayType(_I64, len(words)), words), internal=False)
        return internals.linked(self.module, self.entry, None, False)

    def load(self, pointer: Any, offset: int, kind: Any) -> Any:
        place = self.builder.gep(pointer, [_i64(offset)])
        return self.builder.load(self.builder.bitcast(place, kind.as_pointer()))

    def word(self, words: Any, n: int) -> Any:
        return self.builder.load(self.builder.gep(words, [_i64(n)]))


def _returns(kind: Any) -> int:
    return _NONE if kind == types.none else _BOOL if kind == types.boolean else _NUMBER


class _Kernel(_Module):
    """A kernel's entry, and the functions that Numba's code calls."""

    def __init__(self, compiled: internals.Compiled, name: str, entry: str):
        super().__init__(entry)
        self.compiled, self.name = compiled, name
        self.kernel = compiled.declare(self.module)

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

    def called(self, values: list[Any]) -> tuple[Any, Any, Any]:
        return self.compiled.call(self.builder, self.kernel, values)

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

    def described(self, kinds: Any) -> list[int]:
        """Returns the words of a record that tell how to unpack arguments of these types."""
        words: list[int] = []
        for kind in kinds:
            if isinstance(kind, types.BaseTuple):
                words += [_TUPLE, len(kind.types), 0, 0, *self.described(kind.types)]
            elif isinstance(kind, types.Array) and not kind.aligned:
                words += [_ARRAY, _STORED, 0, _ALIGNED | _WRITEABLE | _ROW_MAJOR]
            elif isinstance(kind, types.Array):
                letter = {types.Boolean: "b", types.Float: "f"}.get(type(kind.dtype)) or "iu"[not kind.dtype.signed]
                flags = _ALIGNED | (_WRITEABLE | _ROW_MAJOR * (kind.layout == "C") if kind.mutable else 0)
                size = self.compiled.itemsize(kind)
                words += [_ARRAY, kind.ndim if kind.mutable else _MEMORY, size << 8 | ord(letter), flags]
            elif isinstance(kind, types.Boolean):
                words += [_TRUTH, 0, 0, 0]
            elif isinstance(kind, types.Float):
                words += [_FLOAT, 0, 0, 0]
            elif kind in (types.int64, types.uint64):
                words += [_SIGNED if kind.signed else _UNSIGNED, 0, 0, 0]
            else:
                raise TypeError(f"{self.name}: kernels cannot take arguments of type {kind}")
        return words

    def record(self, kinds: Any, code: Any) -> None:
        message = f"No matching definition for the arguments of the compiled kernel {self.name}".encode() + b"\0"
        text = self.constant(f"{self.entry}.text", ir.Constant(ir.ArrayType(_I8, len(message)), bytearray(message)))
        numbers = [len(kinds), self.count(kinds), _returns(self.compiled.returns), *self.described(kinds)]
        words = [code.ptrtoint(_I64), text.ptrtoint(_I64), *map(_i64, numbers)]
        self.constant(self.entry, ir.Constant(ir.ArrayType(_I64, len(words)), words), internal=False)

    def code(self, kinds: Any, ranged: bool) -> Any:
        """code(place, first, last): runs the kernel on the numbers at `place`. Returns whether it failed.

        Numba's description of an error is stored before them, and the result of a plain kernel at `first`.
        """
        function = self.begin(_RUN, f"{self.entry}.code")
        builder, (place, first, last) = self.builder, function.args
        words = builder.inttoptr(place, _WORDS)
        leaves = (self.word(words, n) for n in range(self.count(kinds)))
        values = [self.value(kind, leaves) for kind in kinds]
        failed, why, result = self.called([*values, first, last] if ranged else values)
        with builder.if_then(failed, likely=False):
            builder.store(builder.ptrtoint(why, _I64), builder.gep(words, [_i64(-1)]))
        if not ranged and _returns(self.compiled.returns) != _NONE:
            result = builder.zext(result, _I64) if result.type != _I64 else result
            builder.store(result, builder.inttoptr(first, _WORDS))
        builder.ret(builder.zext(failed, _I64))
        return function

    # --- the three kinds ---

    def shared(self) -> None:
        kinds = self.compiled.takes[:-2]
        if 8 * self.count(kinds) > _ROOM:
            raise ValueError(f"the kernel's arguments take {8 * self.count(kinds)} bytes, more than {_ROOM}")
        self.record(kinds, self.code(kinds, ranged=True))

    def plain(self) -> None:
        self.record(self.compiled.takes, self.code(self.compiled.takes, ranged=False))

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


class _Launcher(_Module):
    """The functions through which Python calls every kernel: one at a time, or a list of launches."""

    def object(self, name: str) -> Any:
        return internals.declared(self.module, ir.FunctionType(_VOID, []), native.PREFIX + name).bitcast(_POINTER)

    def require(self, condition: Any) -> None:
        """Continues only if the condition is true; otherwise the arguments are refused."""
        on = self.builder.append_basic_block()
        self.builder.cbranch(condition, on, self.refused)
        self.builder.position_at_end(on)

    def no_error(self, suspicious: Any) -> None:
        """Refuses the arguments if a suspicious result is an error: it is a plain number unless Python has one set."""
        builder = self.builder
        with builder.if_then(suspicious, likely=False):
            self.require(builder.icmp_unsigned("==", self.call("PyErr_Occurred"), ir.Constant(_POINTER, None)))

    # --- unpacking ---

    def truth(self, given: Any) -> Any:
        truth = self.call("PyObject_IsTrue", given)
        self.require(self.builder.icmp_signed(">=", truth, ir.Constant(_I32, 0)))
        return self.builder.zext(truth, _I64)

    def real(self, given: Any) -> Any:
        number = self.call("PyFloat_AsDouble", given)
        self.no_error(self.builder.fcmp_ordered("==", number, ir.Constant(_DOUBLE, -1.0)))
        return self.builder.bitcast(number, _I64)

    def whole(self, given: Any, signed: bool = True) -> Any:
        if signed:
            number = self.call("PyLong_AsLongLong", given)
        else:  # unlike the other, Python's function takes nothing but its own numbers
            index = self.call("PyNumber_Index", given)
            self.require(self.builder.icmp_unsigned("!=", index, ir.Constant(_POINTER, None)))
            number = self.call("PyLong_AsUnsignedLongLong", index)
            self.call("Py_DecRef", index)
        self.no_error(self.builder.icmp_signed("==", number, _i64(-1)))
        return number

    def array(self, given: Any, dims: Any, kind: Any, flags: Any, put: Callable) -> None:
        """Checks that an object is an array as its kernel takes it, and unpacks it with `put`."""
        builder = self.builder
        is_array = self.call("PyObject_IsInstance", given, self.object("ndarray"))
        self.require(builder.icmp_signed("==", is_array, ir.Constant(_I32, 1)))
        own = builder.sext(self.load(given, _HEAD + 8, _I32), _I64)
        memory = builder.icmp_signed("<", dims, _i64(0))
        stored = builder.icmp_signed("==", dims, _i64(_STORED))
        fits = builder.or_(memory, builder.icmp_signed("==", own, dims))
        dtype = self.load(given, _HEAD + 40, _POINTER)
        order = self.load(dtype, _HEAD + 10, _I8)
        fits = builder.and_(fits, builder.icmp_unsigned("!=", order, ir.Constant(_I8, ord(">"))))
        letter = builder.zext(self.load(dtype, _HEAD + 8, _I8), _I64)
        size = self.load(dtype, _HEAD + 24, _I64)
        same = builder.icmp_signed("==", builder.or_(builder.shl(size, _i64(8)), letter), kind)
        same = builder.or_(same, builder.icmp_signed("==", kind, _i64(0)))
        found = builder.and_(builder.zext(self.load(given, _HEAD + 48, _I32), _I64), flags)
        self.require(builder.and_(builder.and_(fits, same), builder.icmp_unsigned("==", found, flags)))
        put(self.load(given, _HEAD, _I64))
        with builder.if_else(memory) as (alone, shaped):
            with alone:
                with builder.goto_entry_block():
                    count = builder.alloca(_I64)
                builder.store(_i64(_ENDLESS), count)
                with builder.if_then(stored):
                    builder.store(builder.lshr(size, _i64(1)), count)
                    lengths = self.load(given, _HEAD + 16, _WORDS)
                    with internals.counted(builder, own) as d:
                        length = builder.load(builder.gep(lengths, [d]))
                        builder.store(builder.mul(builder.load(count), length), count)
                put(builder.load(count))
                put(builder.select(stored, _i64(2), size))
            with shaped:
                for offset in (16, 24):  # the shape and the strides
                    numbers = self.load(given, _HEAD + offset, _WORDS)
                    with internals.counted(builder, dims) as d:
                        put(builder.load(builder.gep(numbers, [d])))

    def unpack(self) -> Any:
        """unpack(tuple, vector, size, kinds, to): unpacks the items of a tuple, or of a vector if that is null.

        `kinds` is where the record's words for them are; it ends after them. Returns where the numbers that `to` begins
        with end, or null if something does not fit.
        """
        takes = [_POINTER, _POINTER.as_pointer(), _I64, _WORDS.as_pointer(), _WORDS]
        function = self.begin(ir.FunctionType(_WORDS, takes), f"{self.entry}.unpack")
        builder, (given, vector, size, kinds, to) = self.builder, function.args
        self.refused = function.append_basic_block("refused")
        ir.IRBuilder(self.refused).ret(ir.Constant(_WORDS, None))
        place, item = builder.alloca(_WORDS), builder.alloca(_POINTER)
        builder.store(to, place)

        def put(number: Any) -> None:
            at = builder.load(place)
            builder.store(number, at)
            builder.store(builder.gep(at, [_i64(1)]), place)

        from_vector = builder.icmp_unsigned("==", given, ir.Constant(_POINTER, None))
        with internals.counted(builder, size) as n:
            with builder.if_else(from_vector) as (plain, inside):
                with plain:
                    builder.store(builder.load(builder.gep(vector, [n])), item)
                with inside:
                    builder.store(self.call("PyTuple_GetItem", given, n), item)
            one, words = builder.load(item), builder.load(kinds)
            kind, *options = (self.word(words, i) for i in range(4))
            builder.store(builder.gep(words, [_i64(4)]), kinds)
            after = builder.append_basic_block("after")
            choice = builder.switch(kind, self.refused)
            for number in (_TUPLE, _TRUTH, _FLOAT, _SIGNED, _UNSIGNED, _ARRAY):
                block = builder.append_basic_block()
                choice.add_case(_i64(number), block)
                builder.position_at_end(block)
                if number == _TUPLE:
                    length = options[0]
                    self.require(builder.icmp_signed("==", self.call("PyTuple_Size", one), length))
                    none = ir.Constant(_POINTER.as_pointer(), None)
                    end = builder.call(function, [one, none, length, kinds, builder.load(place)])
                    self.require(builder.icmp_unsigned("!=", end, ir.Constant(_WORDS, None)))
                    builder.store(end, place)
                elif number == _ARRAY:
                    dims, dtype, flags = options
                    self.array(one, dims, dtype, flags, put)
                elif number in (_SIGNED, _UNSIGNED):
                    put(self.whole(one, signed=number == _SIGNED))
                else:
                    put(self.truth(one) if number == _TRUTH else self.real(one))
                builder.branch(after)
            builder.position_at_end(after)
        builder.ret(builder.load(place))
        return function

    # --- calling ---

    def python(self, name: str, fewest: int) -> tuple[Any, Any, Any]:
        """Begins a Python function whose first argument is a record's address. Returns its arguments and the record."""
        kind = ir.FunctionType(_POINTER, [_POINTER, _POINTER.as_pointer(), _I64])
        function = self.begin(kind, f"{self.entry}.{name}")
        builder, (_, given, count) = self.builder, function.args
        null = ir.Constant(_POINTER, None)
        self.refused = function.append_basic_block("unknown")  # without a record there is no name
        unknown = self.builder = ir.IRBuilder(self.refused)
        unknown.ret(null)
        self.builder = builder
        self.require(builder.icmp_signed(">=", count, _i64(fewest)))
        record = builder.inttoptr(self.whole(builder.load(given)), _WORDS)
        self.refused = function.append_basic_block("refused")
        self.builder = ir.IRBuilder(self.refused)
        self.call("PyErr_Clear")
        message = self.builder.inttoptr(self.word(record, _TEXT), _POINTER)
        self.call("PyErr_SetString", self.object("TypeError"), message)
        self.builder.ret(null)
        self.builder = builder
        return function, (given, count), record

    def numbers(self, record: Any, unpack: Any, *given: Any) -> Any:
        """Returns the address of the numbers that arguments are unpacked to; a word for an error is before them."""
        builder = self.builder
        memory = builder.alloca(_I64, size=builder.add(self.word(record, _NUMBERS), _i64(1)))
        kinds = builder.alloca(_WORDS)
        builder.store(builder.gep(record, [_i64(_KINDS)]), kinds)
        to = builder.gep(memory, [_i64(1)])
        end = builder.call(unpack, [*given, self.word(record, _TAKES), kinds, to])
        self.require(builder.icmp_unsigned("!=", end, ir.Constant(_WORDS, None)))
        return to

    def run(self, record: Any, *given: Any) -> Any:
        code = self.builder.inttoptr(self.word(record, _CODE), _RUN.as_pointer())
        return self.builder.call(code, given)

    def without_gil(self, released: Any) -> Any:
        """Releases the GIL if the condition is true. Returns where the thread's state is, for `with_gil`."""
        thread = self.builder.alloca(_POINTER)
        self.builder.store(ir.Constant(_POINTER, None), thread)
        with self.builder.if_then(released):
            self.builder.store(self.call("PyEval_SaveThread"), thread)
        return thread

    def with_gil(self, thread: Any) -> None:
        """Takes the GIL again if it was released."""
        state = self.builder.load(thread)
        with self.builder.if_then(self.builder.icmp_unsigned("!=", state, ir.Constant(_POINTER, None))):
            self.call("PyEval_RestoreThread", state)

    def raise_if(self, failed: Any, numbers: Any) -> None:
        """Raises the error that a kernel has stored, if it failed."""
        builder = self.builder
        with builder.if_then(builder.icmp_signed("!=", failed, _i64(0)), likely=False):
            error = builder.inttoptr(self.word(numbers, -1), _POINTER)
            data, size = self.load(error, 0, _POINTER), builder.sext(self.load(error, 8, _I32), _I64)
            given = self.call("PyTuple_New", _i64(1))
            self.call("PyTuple_SetItem", given, _i64(0), self.call("PyBytes_FromStringAndSize", data, size))
            self.call("PyObject_CallObject", self.object("raise"), given)
            self.call("Py_DecRef", given)
            builder.ret(ir.Constant(_POINTER, None))

    def launch(self, unpack: Any) -> Any:
        """launch(record, arguments, length, mailbox, workers): runs a shared kernel (launch.py).

        It keeps the GIL if `workers` is negative.
        """
        function, (given, count), record = self.python("launch", 5)
        builder = self.builder
        self.require(builder.icmp_signed("==", count, _i64(5)))
        arguments, *numbers = (builder.load(builder.gep(given, [_i64(n)])) for n in range(1, 5))
        size = self.call("PyTuple_Size", arguments)
        self.require(builder.icmp_signed("==", size, self.word(record, _TAKES)))
        last, mailbox, workers = (self.whole(number) for number in numbers)
        from_ = self.numbers(record, unpack, arguments, ir.Constant(_POINTER.as_pointer(), None))
        thread = self.without_gil(builder.icmp_signed(">=", workers, _i64(0)))
        with builder.if_else(builder.icmp_signed(">", workers, _i64(0))) as (together, alone):
            with together:
                to = builder.inttoptr(builder.add(mailbox, _i64(8 * ARGUMENTS)), _WORDS)
                with internals.counted(builder, self.word(record, _NUMBERS)) as n:
                    builder.store(builder.load(builder.gep(from_, [n])), builder.gep(to, [n]))
                slot = builder.inttoptr(builder.add(mailbox, _i64(8 * DIVIDE)), _WORDS)
                divide = builder.inttoptr(builder.load(slot), ir.FunctionType(_I64, [_I64] * 4).as_pointer())
                happened = builder.call(divide, [self.word(record, _CODE), mailbox, last, workers])
                after_together = builder.block
            with alone:
                failed = self.run(record, builder.ptrtoint(from_, _I64), _i64(0), last)
                after_alone = builder.block
        result, wrong = builder.phi(_I64), builder.phi(_I64)
        result.add_incoming(happened, after_together)
        result.add_incoming(_i64(0), after_alone)
        wrong.add_incoming(_i64(0), after_together)
        wrong.add_incoming(failed, after_alone)
        self.with_gil(thread)
        self.raise_if(wrong, from_)
        builder.ret(self.call("PyLong_FromLongLong", result))
        return function

    def plainly(self, unpack: Any) -> Any:
        """call(record, *arguments): runs a plain kernel."""
        function, (given, count), record = self.python("call", 1)
        builder = self.builder
        self.require(builder.icmp_signed("==", count, builder.add(self.word(record, _TAKES), _i64(1))))
        result = builder.alloca(_I64)
        vector = builder.gep(given, [_i64(1)])
        numbers = self.numbers(record, unpack, ir.Constant(_POINTER, None), vector)
        thread = self.call("PyEval_SaveThread")
        failed = self.run(record, builder.ptrtoint(numbers, _I64), builder.ptrtoint(result, _I64), _i64(0))
        self.call("PyEval_RestoreThread", thread)
        self.raise_if(failed, numbers)
        returns = self.word(record, _RETURNS)
        with builder.if_then(builder.icmp_signed("==", returns, _i64(_NONE))):
            self.call("Py_IncRef", self.object("None"))
            builder.ret(self.object("None"))
        with builder.if_then(builder.icmp_signed("==", returns, _i64(_BOOL))):
            builder.ret(self.call("PyBool_FromLong", builder.load(result)))
        builder.ret(self.call("PyLong_FromLongLong", builder.load(result)))
        return function

    # --- comparisons ---

    def same(self) -> Any:
        """same(list): whether words of memory, and what containers have, are as a list says (identities.py)."""
        kind = ir.FunctionType(_POINTER, [_POINTER, _POINTER.as_pointer(), _I64])
        function = self.begin(kind, f"{self.entry}.same")
        builder, (_, given, count) = self.builder, function.args
        self.refused = function.append_basic_block("unknown")
        ir.IRBuilder(self.refused).ret(ir.Constant(_POINTER, None))
        self.require(builder.icmp_signed("==", count, _i64(1)))
        words = builder.inttoptr(self.whole(builder.load(given)), _WORDS)
        self.refused = function.append_basic_block("refused")
        self.builder = ir.IRBuilder(self.refused)
        self.builder.ret(self.call("PyBool_FromLong", _i64(0)))
        self.builder = builder
        equal, unequal, sequences, walks, items = (self.word(words, n) for n in range(5))
        place = builder.alloca(_WORDS)
        builder.store(builder.gep(words, [_i64(5)]), place)
        at, key, value = (builder.alloca(_I64) for _ in range(3))

        def following() -> Any:
            at = builder.load(place)
            builder.store(builder.gep(at, [_i64(1)]), place)
            return builder.load(at)

        for number, sign in ((equal, "=="), (unequal, "!=")):
            with internals.counted(builder, number):
                address, wanted = following(), following()
                found = builder.load(builder.inttoptr(address, _WORDS))
                self.require(builder.icmp_signed(sign, found, wanted))
        with internals.counted(builder, sequences):
            owner, length = following(), following()
            held = self.load(builder.inttoptr(owner, _POINTER), _HEAD + 8, _WORDS)
            with internals.counted(builder, length) as n:
                found = builder.load(builder.gep(held, [n]))
                self.require(builder.icmp_signed("==", found, following()))
        with internals.counted(builder, walks):
            owner, length = builder.inttoptr(following(), _POINTER), following()
            builder.store(_i64(0), at)
            with internals.counted(builder, length):
                there = self.call("PyDict_Next", owner, at, key, value)
                wanted, held = following(), following()
                alike = builder.icmp_signed("==", builder.load(value), held)
                alike = builder.or_(alike, builder.icmp_signed("==", held, _i64(0)))
                alike = builder.and_(alike, builder.icmp_signed("==", builder.load(key), wanted))
                self.require(builder.and_(alike, builder.icmp_signed("!=", there, ir.Constant(_I32, 0))))
        with internals.counted(builder, items):
            owner, name, held = builder.inttoptr(following(), _POINTER), following(), following()
            last = following()
            builder.store(last, at)
            builder.store(_i64(0), key)
            with builder.if_then(builder.icmp_signed(">=", last, _i64(0))):
                self.call("PyDict_Next", owner, at, key, value)
            with builder.if_then(builder.icmp_signed("!=", builder.load(key), name), likely=False):
                found = self.call("PyDict_GetItemWithError", owner, builder.inttoptr(name, _POINTER))
                found = builder.ptrtoint(found, _I64)
                builder.store(found, value)
                with builder.if_then(builder.icmp_signed("==", found, _i64(0)), likely=False):
                    self.call("PyErr_Clear")
            self.require(builder.icmp_signed("==", builder.load(value), held))
        builder.ret(self.call("PyBool_FromLong", _i64(1)))
        return function

    # --- lists of launches ---

    def fits(self) -> Any:
        """fits(object, words): whether it is an array as the words say (launch.py). Returns where they end, or null."""
        function = self.begin(ir.FunctionType(_WORDS, [_POINTER, _WORDS]), f"{self.entry}.fits")
        builder, (given, words) = self.builder, function.args
        self.refused = function.append_basic_block("refused")
        ir.IRBuilder(self.refused).ret(ir.Constant(_WORDS, None))
        kind = builder.ptrtoint(self.object("ndarray"), _I64)
        self.require(builder.icmp_unsigned("==", self.load(given, 8, _I64), kind))
        flags = builder.and_(builder.zext(self.load(given, _HEAD + 48, _I32), _I64), self.word(words, 0))
        dims = builder.sext(self.load(given, _HEAD + 8, _I32), _I64)
        same = builder.icmp_signed("==", flags, self.word(words, 1))
        same = builder.and_(same, builder.icmp_signed("==", self.load(given, _HEAD + 40, _I64), self.word(words, 2)))
        self.require(builder.and_(same, builder.icmp_signed("==", dims, self.word(words, 3))))
        place = builder.alloca(_WORDS)
        builder.store(builder.gep(words, [_i64(4)]), place)
        for offset in (16, 24):  # the shape and the strides
            numbers = self.load(given, _HEAD + offset, _WORDS)
            with internals.counted(builder, dims) as d:
                at = builder.load(place)
                self.require(builder.icmp_signed("==", builder.load(builder.gep(numbers, [d])), builder.load(at)))
                builder.store(builder.gep(at, [_i64(1)]), place)
        builder.ret(builder.load(place))
        return function

    def replay(self, fits: Any) -> Any:
        """replay(list, *arrays): runs a list of launches (launch.py) on arrays. Returns whether it did.

        It works on a copy of the numbers, so that threads may run the same list at a time. Nothing is started if an
        array is not as the list says; an error of a kernel ends it.
        """
        kind = ir.FunctionType(_POINTER, [_POINTER, _POINTER.as_pointer(), _I64])
        function = self.begin(kind, f"{self.entry}.replay")
        builder, (_, given, count) = self.builder, function.args
        null = ir.Constant(_POINTER, None)
        self.refused = function.append_basic_block("unknown")
        ir.IRBuilder(self.refused).ret(null)
        self.require(builder.icmp_signed(">=", count, _i64(1)))
        words = builder.inttoptr(self.whole(builder.load(given)), _WORDS)
        arrays, numbers, patches, launches, brief = (self.word(words, n) for n in range(5))
        self.refused = function.append_basic_block("refused")
        self.builder = ir.IRBuilder(self.refused)
        self.builder.ret(self.call("PyBool_FromLong", _i64(0)))
        self.builder = builder
        self.require(builder.icmp_signed("==", builder.sub(count, _i64(1)), arrays))
        place = builder.alloca(_WORDS)
        builder.store(builder.gep(words, [_i64(5)]), place)
        with internals.counted(builder, arrays) as n:
            one = builder.load(builder.gep(given, [builder.add(n, _i64(1))]))
            end = builder.call(fits, [one, builder.load(place)])
            self.require(builder.icmp_unsigned("!=", end, ir.Constant(_WORDS, None)))
            builder.store(end, place)

        def following() -> Any:
            at = builder.load(place)
            builder.store(builder.gep(at, [_i64(1)]), place)
            return builder.load(at)

        memory = builder.alloca(_I64, size=builder.add(numbers, _i64(1)))
        with internals.counted(builder, numbers) as n:
            builder.store(following(), builder.gep(memory, [n]))
        with internals.counted(builder, patches):
            at, which, offset = following(), following(), following()
            one = builder.load(builder.gep(given, [builder.add(which, _i64(1))]))
            builder.store(builder.add(self.load(one, _HEAD, _I64), offset), builder.gep(memory, [at]))
        thread = self.without_gil(builder.icmp_signed("==", brief, _i64(0)))
        failed = builder.alloca(_I64)
        builder.store(_i64(0), failed)
        with internals.counted(builder, launches):
            code, at, last = following(), following(), following()
            with builder.if_then(builder.icmp_signed("==", builder.load(failed), _i64(0))):
                run = builder.inttoptr(code, _RUN.as_pointer())
                start = builder.ptrtoint(builder.gep(memory, [at]), _I64)
                builder.store(builder.call(run, [start, _i64(0), last]), failed)
        self.with_gil(thread)
        done = builder.zext(builder.icmp_signed("==", builder.load(failed), _i64(0)), _I64)
        builder.ret(self.call("PyBool_FromLong", done))
        return function


def built(function: Callable, signature: str, kind: str, entry: str, product: bool = False, calls: tuple = ()) -> bytes:
    """Returns a kernel's object file. `signature` is "void(float32[::1], ..., int64, int64)".

    `product`: its loops go through so many arrays at once that loop strength reduction pays (launch.py).
    `calls`: functions that it only calls (internals.py).
    """
    options = {"error_model": "numpy", "nogil": True, "fastmath": {"contract"}}
    compiled = internals.Compiled(function, signature, options, calls)
    writing = _Kernel(compiled, function.__name__, entry)
    getattr(writing, kind)()
    writing.memory()
    writing.counting()
    writing.reshape()
    return internals.linked(writing.module, entry, compiled.library, product)


def launcher(entry: str) -> bytes:
    """Returns the launcher's object file. Its entry is the addresses of its functions, then those for Windows."""
    writing = _Launcher(entry)
    unpack, fits = writing.unpack(), writing.fits()
    made = writing.launch(unpack), writing.plainly(unpack), writing.replay(fits), writing.same()
    return writing.of_addresses([*made, *map(writing.for_windows, made)])


def calls(entry: str) -> bytes:
    """Returns the object file of functions that call those of `native.CALLED` as Windows does.

    Its entry is their addresses.
    """
    writing = _Module(entry)
    return writing.of_addresses([writing.calling_as_windows(name) for name in native.CALLED])
