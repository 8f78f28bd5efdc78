"""Runs carried kernels for aarch64 on an emulated processor (Unicorn).

It sees this process's memory where it is, so kernels get the program's own arrays. Functions that they import are this
process's. The stack grows as on Windows: by the next page, when that is touched. `use` puts it in the place of the
loader and of the launcher; the rest of the package does not notice. Kernels run on one thread.

    python -m tests.support.emulated FILE [KERNEL ...]      compares kernels with NumPy's (tools/kernels/verify.py)
"""

from __future__ import annotations

import ctypes
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tensorgrad.kernels.compiled.runtime import launch, library, native, target

_STACK = 8 << 20  # bytes
_PAGE = 4096
_TUPLE, _TRUTH, _FLOAT, _SIGNED, _UNSIGNED, _ARRAY = range(6)  # as in tools/kernels/entries.py
_STORED = -2


# What loops over numbers import: functions, and how many arguments they take.
_IMPORTED = {"tensorgrad_PyMem_RawMalloc": 1, "tensorgrad_PyMem_RawFree": 1, "memcpy": 3, "memmove": 3, "memset": 3}


class Emulated:
    """An emulated processor of aarch64."""

    def __init__(self) -> None:
        import unicorn
        from unicorn import arm64_const

        self.unicorn, self.registers, self.errors = unicorn, arm64_const, (unicorn.UcError,)
        self.engine = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        self.engine.reg_write(arm64_const.UC_ARM64_REG_CPACR_EL1, 3 << 20)  # the vector registers are on
        self.stack = ctypes.create_string_buffer(_STACK)
        self.bottom = -(-ctypes.addressof(self.stack) // _PAGE) * _PAGE
        self.touched = self.bottom + _STACK - 2 * _PAGE  # the lowest page that was
        self.functions: dict[int, Any] = {}
        # Where imported functions are: instructions that return, before each of which `_called` runs the function.
        self.start = 0x10000
        self.engine.mem_map(self.start, 0x10000)
        self.engine.mem_write(self.start, struct.pack("<I", 0xD65F03C0) * 0x4000)
        self.end = self.start + 0xFFF0
        self.engine.hook_add(unicorn.UC_HOOK_CODE, self._called, begin=self.start, end=self.start + 0xFFFF)
        self.engine.hook_add(unicorn.UC_HOOK_MEM_UNMAPPED, self._reached)
        self.runs = 0

    def imported(self) -> dict[str, int]:
        """Returns the addresses of what code may import. Only what loops over numbers call is there."""
        real, made = native.addresses(), {}
        for n, name in enumerate(real):
            made[name] = self.start + 16 * n
            if name in _IMPORTED:
                kind = ctypes.CFUNCTYPE(ctypes.c_uint64, *[ctypes.c_uint64] * _IMPORTED[name])
                self.functions[made[name]] = kind(real[name]), _IMPORTED[name]
        return made

    def _called(self, engine: Any, address: int, size: int, data: Any) -> None:
        if address == self.end:
            return
        function, count = self.functions[address]
        first = self.registers.UC_ARM64_REG_X0
        given = [engine.reg_read(first + n) for n in range(count)]
        engine.reg_write(first, function(*given) or 0)

    def _reached(self, engine: Any, access: int, address: int, size: int, value: int, data: Any) -> bool:
        """Lets the processor see pages of this process's memory when it first reaches them."""
        ends = {address // _PAGE * _PAGE, (address + max(size, 1) - 1) // _PAGE * _PAGE}
        for page in sorted(ends, reverse=True):
            if not any(first <= page <= last for first, last, _ in engine.mem_regions()):
                if self.bottom <= page < self.touched:
                    if page < self.touched - _PAGE:
                        return False
                    self.touched = page
                engine.mem_map_ptr(page, _PAGE, self.unicorn.UC_PROT_ALL, ctypes.c_void_p(page))
        return True

    def run(self, code: int, *given: int) -> int:
        """Calls code at an address with numbers, and returns its result."""
        engine, r = self.engine, self.registers
        top = self.bottom + _STACK - _PAGE - 64
        for register, number in zip((r.UC_ARM64_REG_X0, r.UC_ARM64_REG_X1, r.UC_ARM64_REG_X2), given):
            engine.reg_write(register, number)
        engine.reg_write(r.UC_ARM64_REG_SP, top)
        engine.reg_write(r.UC_ARM64_REG_X30, self.end)
        engine.emu_start(code, self.end)
        self.runs += 1
        return int(engine.reg_read(r.UC_ARM64_REG_X0))


def unpacked(record: int, given: tuple) -> list[int]:
    """Returns the numbers of a kernel's arguments, as the compiled launcher unpacks them. Raises: TypeError."""
    count = native.words(record, 6)[2]
    at = record + 5 * 8
    numbers: list[int] = []

    def put(values: Any, count: int) -> None:
        nonlocal at
        if len(values) != count:
            raise TypeError("No matching definition: another number of arguments")
        for value in values:
            kind, *options = native.words(at, 4)
            at += 32
            if kind == _TUPLE:
                put(value, options[0])
            elif kind == _ARRAY:
                dims, dtype, flags = options
                letter = value.dtype.kind if isinstance(value, np.ndarray) else None
                if (
                    letter is None
                    or (dims >= 0 and value.ndim != dims)
                    or dtype not in (0, value.dtype.itemsize << 8 | ord(letter))
                    or value.flags.num & flags != flags
                ):
                    raise TypeError("No matching definition: an array of another kind")
                numbers.append(value.__array_interface__["data"][0])
                memory = (value.nbytes // 2, 2) if dims == _STORED else (1 << 56, value.itemsize)
                numbers.extend(memory if dims < 0 else (*value.shape, *value.strides))
            elif kind == _FLOAT:
                numbers.append(struct.unpack("<q", struct.pack("<d", value))[0])
            else:
                numbers.append(int(value))

    put(given, count)
    return numbers


def use(file: Path) -> Emulated:
    """Has this process run the kernels of a file."""
    image = library.Image(str(file))
    target.use(image.head["level"])
    processor = Emulated()
    imported = processor.imported()
    native.addresses = lambda: imported  # type: ignore[assignment]
    library.image = lambda: image  # type: ignore[assignment]

    def run(record: int, given: tuple, first: int, last: int) -> int:
        code, _, _, count, *_ = native.words(record, 5)
        numbers = unpacked(record, given)
        assert len(numbers) == count, (len(numbers), count)
        memory = (ctypes.c_int64 * (count + 1))(0, *[(n + (1 << 63)) % (1 << 64) - (1 << 63) for n in numbers])
        if processor.run(code, ctypes.addressof(memory) + 8, first, last):
            where, size = native.words(memory[0], 2)
            native.raise_error(ctypes.string_at(where, size & 0xFFFFFFFF))
        return 0

    def started(record: int, given: tuple, length: int, mailbox: int, workers: int) -> int:
        return run(record, given, 0, length)

    def called(record: int, *given: Any) -> Any:
        result = ctypes.c_int64()
        run(record, given, ctypes.addressof(result), 0)
        returns = native.words(record, 5)[4]
        return None if returns == 0 else bool(result.value) if returns == 1 else result.value

    launch._functions = started, called
    return processor


def main(file: str, *kernels: str) -> int:
    """Compares kernels with NumPy's. Returns how many differ."""
    from tensorgrad.kernels.compiled import table
    from tools.kernels import verify

    processor, wrong = use(Path(file)), 0
    for kernel in kernels or dict.fromkeys(row.kernel for row in table.ROWS if row is not table.WAITING):
        before = processor.runs
        try:
            calls = verify.uses(kernel, library.load(kernel))
            print(f"{kernel}: {calls} calls, {processor.runs - before} launches")
        except (ArithmeticError, library.Missing, KeyError, *processor.errors) as error:
            wrong += 1
            print(f"{kernel}: {error!r}")
    return wrong


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
