"""Runs this process's kernels as Windows does: it calls them, and they call functions, by the rules of Windows.

All happens on this processor. Python's calls go through code that gives a value to every register which a function has
to leave alone, and looks whether it is still there. What kernels import is there as Windows's functions are: it writes
to the 32 bytes that a caller leaves it, and in the end to all registers that it may change. What breaks a rule ends the
process by an instruction that no processor knows. The loader asks for memory as on Windows, and threads have no
function of the system to wait with.

    python -m tests.support.windows [KERNEL ...]      compares kernels with NumPy's (tools/kernels/verify.py)
"""

from __future__ import annotations

import ctypes
import importlib
import mmap
import os
import sys
from typing import Any

from tensorgrad.kernels.compiled.runtime import library, memory, native

_KEPT = ("rbx", "rbp", "rdi", "rsi", "r12", "r13", "r14", "r15", *(f"xmm{n}" for n in range(6, 16)))
_MARKS = {register: 0x1234_5678_9ABC_DE00 + n for n, register in enumerate(_KEPT)}
_ALL_ONES = "vpcmpeqd %xmm{0}, %xmm{0}, %xmm{0}"
# What the functions return, if not 64 bits in a register.
_RETURNS_INT = {"PyDict_Next", "PyObject_IsInstance", "PyObject_IsTrue", "PyTuple_SetItem"}
_RETURNS_DOUBLE = {"PyFloat_AsDouble"}
_engines: list[Any] = []  # which hold the code


def _assembled(functions: dict[str, list[str]]) -> dict[str, int]:
    """Returns the addresses of functions in assembly, in which a jump to `wrong` ends the process."""
    from llvmlite import binding as llvm

    for begin in (llvm.initialize_native_target, llvm.initialize_native_asmprinter, llvm.initialize_native_asmparser):
        begin()
    lines = ["wrong: ud2"]
    for name, code in functions.items():
        lines += [f".globl {name}", f"{name}:", *code, "retq"]
    module = llvm.parse_assembly("\n".join(f'module asm "{line}"' for line in lines))
    engine = llvm.create_mcjit_compiler(module, llvm.Target.from_default_triple().create_target_machine())
    engine.finalize_object()
    _engines.append(engine)
    return {name: engine.get_function_address(name) for name in functions}


def _imported(name: str, address: int) -> list[str]:
    """Returns a function that is called as Windows's are, and does what the one at an address does."""
    begin = ["leaq 8(%rsp), %rax", "testb $15, %al", "jne wrong"]  # what calls keeps the stack aligned
    begin += [f"movq $-1, {at}(%rsp)" for at in (8, 16, 24, 32)]
    begin += ["pushq %rdi", "pushq %rsi", "subq $168, %rsp"]
    begin += [f"movaps %xmm{n}, {16 * (n - 6)}(%rsp)" for n in range(6, 16)]
    moved = ["movq %rcx, %rdi", "movq %rdx, %rsi", "movq %r8, %rdx", "movq %r9, %rcx"]
    if name == "PyBool_FromLong":
        moved.append("movslq %edi, %rdi")  # `long` has 32 bits
    end = [f"movaps {16 * (n - 6)}(%rsp), %xmm{n}" for n in range(6, 16)]
    end += ["addq $168, %rsp", "popq %rsi", "popq %rdi", "vzeroupper"]
    end += [f"movq $-1, %{register}" for register in ("rcx", "rdx", "r8", "r9", "r10", "r11")]
    end += [_ALL_ONES.format(n) for n in range(0 if name not in _RETURNS_DOUBLE else 1, 6)]
    if name in _RETURNS_DOUBLE:
        end.append("movq $-1, %rax")
    elif name in _RETURNS_INT:
        end += ["shlq $32, %rcx", "movl %eax, %eax", "orq %rcx, %rax"]
    return [*begin, *moved, f"movabsq ${address}, %rax", "callq *%rax", *end]


def _calling(address: int) -> list[str]:
    """Returns a function of Python's that calls the one at an address as Windows does."""
    pushed = ("rbp", "rbx", "r12", "r13", "r14", "r15")
    begin = [*(f"pushq %{register}" for register in pushed), "subq $56, %rsp", "movq $77, 32(%rsp)"]
    begin += ["movq %rdi, %rcx", "movq %rdx, %r8", "movq %rsi, %rdx"]
    end = ["cmpq $77, 32(%rsp)", "jne wrong"]  # above the 32 bytes, all is the caller's
    for register, mark in _MARKS.items():
        if register.startswith("xmm"):
            begin += [f"movabsq ${mark}, %rax", f"vmovq %rax, %{register}"]
            begin.append(f"vpunpcklqdq %{register}, %{register}, %{register}")
            halves = [f"vmovq %{register}, %rdx", f"vpextrq $1, %{register}, %rdx"]
        else:
            begin.append(f"movabsq ${mark}, %{register}")
            halves = [f"movq %{register}, %rdx"]
        for half in halves:
            end += [half, f"movabsq ${mark}, %rcx", "cmpq %rcx, %rdx", "jne wrong"]
    end += ["addq $56, %rsp", *(f"popq %{register}" for register in reversed(pushed))]
    return [*begin, f"movabsq ${address}, %rax", "callq *%rax", *end]


_MODES = {0x04: mmap.PROT_READ | mmap.PROT_WRITE, 0x02: mmap.PROT_READ, 0x20: mmap.PROT_READ | mmap.PROT_EXEC}


class _Kernel32:
    """What the loader calls of Windows, by what this system has."""

    def __init__(self, *given: Any, **options: Any):
        system = ctypes.CDLL(None)

        def VirtualAlloc(address: None, size: Any, kind: int, mode: int) -> int:
            assert kind == 0x3000 and _MODES[mode] == mmap.PROT_READ | mmap.PROT_WRITE
            native.keep(made := mmap.mmap(-1, size.value))
            return ctypes.addressof(ctypes.c_char.from_buffer(made))

        def VirtualProtect(address: Any, size: Any, mode: int, before: Any) -> bool:
            return not system.mprotect(address, size, _MODES[mode])

        self.VirtualAlloc, self.VirtualProtect = VirtualAlloc, VirtualProtect


def use() -> None:
    """Has this process run kernels as Windows does, before it loads any."""
    real, there = native.addresses(), native.function
    named = {name: name.removeprefix(native.PREFIX) for name in native.CALLED}
    made = _assembled({short: _imported(short, real[name]) for name, short in named.items()})
    known = real | dict.fromkeys(native.IF_THERE, 0) | {name: made[short] for name, short in named.items()}

    def function(address: int, name: str) -> Any:
        return there(_assembled({name: _calling(address)})[name], name)

    system, os.name, ctypes.WinDLL = os.name, "nt", _Kernel32  # type: ignore[attr-defined]
    importlib.reload(memory)
    os.name = system
    native.WINDOWS = True
    native.system_numbers()[:] = [-1, 0, 0, 0]
    native.addresses = lambda: known  # type: ignore[assignment]
    native.function = function


def main(*kernels: str) -> int:
    """Compares kernels with NumPy's. Returns how many differ."""
    from tensorgrad.kernels.compiled import table
    from tools.kernels import verify

    use()
    wrong = 0
    for kernel in kernels or dict.fromkeys(row.kernel for row in table.ROWS if row is not table.WAITING):
        try:
            print(f"{kernel}: {verify.uses(kernel, library.load(kernel))} calls")
        except (ArithmeticError, library.Missing) as error:
            wrong += 1
            print(f"{kernel}: {error!r}")
    return wrong


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
