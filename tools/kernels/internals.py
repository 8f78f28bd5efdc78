"""All uses of undocumented parts of Numba and llvmlite, and the versions they were tested with.

Numba's internals may change in any version, and a changed memory layout would crash rather than raise an error. So only
this file uses its compiler contexts and data models, with two that replace functions of Numba's to compile faster
(lean.py, shortcuts.py). `untried` reports whether the installed version is one that the tests ran with; with any other
version nothing is compiled.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

# The first version that was tested, and the first that was not (pyproject.toml has the same).
TESTED = {"numba": ("0.61", "0.69"), "llvmlite": ("0.44", "0.51")}


def version(name: str) -> str:
    """Returns the version of an installed package. Raises: PackageNotFoundError if it is not installed."""
    from importlib import metadata

    return metadata.version(name)


def _number(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)[:2]))


def untried() -> str:
    """Returns a sentence about an installed version that kernels were not tested with; "" if all were tested."""
    for name, (first, beyond) in TESTED.items():
        if not _number(first) <= _number(version(name)) < _number(beyond):
            return f"{name} {version(name)} is installed; they were tested with versions from {first} up to {beyond}"
    return ""


# --- the target ---

# LLVM's names for the processors of the levels, and their features. "-prefer-256-bit": LLVM would use half of each
# register for what it vectorizes itself. "+reserve-x18": macOS and Windows keep a register for themselves.
_V3 = "+cx16,+popcnt,+sse3,+sse4.1,+sse4.2,+ssse3,+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe"
_V4 = f"{_V3},+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl,-prefer-256-bit"
TARGETS = {
    "x86-64-v3": ("x86_64-unknown-linux-gnu", "x86-64-v3", _V3),
    "x86-64-v4": ("x86_64-unknown-linux-gnu", "x86-64-v4", _V4),
    "aarch64": ("aarch64-unknown-linux-gnu", "generic", "+fp-armv8,+neon,+reserve-x18"),
}
# What Windows asks of all functions: it adds a page to a thread's stack when that is first touched, but only the next
# one, so a large frame touches each of its pages in turn; and it may write to the memory below the stack at any time.
_STACK = "noredzone", '"probe-stack"="inline-asm"'
_machine: Any = None
_triple = ""


def compile_for(level: str) -> None:
    """Makes Numba compile for a level of processors. It compiles parts of its own for this machine before.

    Code is independent of its place: all that refers to addresses is a table beside it.
    """
    global _machine, _triple
    import llvmlite.binding as llvm
    from numba.core.registry import cpu_target

    context = cpu_target.target_context
    context.refresh()
    context.apply_target_attributes = lambda function, *types: keep_to_stack(function)
    codegen = context.codegen()
    with contextlib.suppress(Exception):  # newer versions need no such call, and raise
        llvm.initialize()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    _triple, name, features = TARGETS[level]
    target = llvm.Target.from_triple(_triple)
    _machine = target.create_target_machine(
        cpu=name, features=features, opt=3, reloc="pic", codemodel="small", jit=False
    )
    codegen._tm, codegen._target_data = _machine, _machine.target_data
    codegen._data_layout = str(_machine.target_data)
    triple_here: Any = lambda: _triple
    llvm.get_process_triple = triple_here


def keep_to_stack(function: Any) -> None:
    """Has a function use the stack as all systems let it."""
    set.update(function.attributes, _STACK)  # llvmlite's own method knows no attribute in quotation marks


def triple() -> str:
    """Returns LLVM's name for the system and processor that kernels are compiled for."""
    return _triple


# --- building blocks of LLVM IR ---


def declared(module: Any, kind: Any, name: str) -> Any:
    """Returns the function of this name in a module, declaring it if needed."""
    from llvmlite import ir

    return module.globals.get(name) or ir.Function(module, kind, name)


@contextlib.contextmanager
def counted(builder: Any, count: Any) -> Iterator[Any]:
    """Emits a loop of `count` iterations around the code that follows. Yields the index."""
    from numba.core import cgutils

    with cgutils.for_range(builder, count) as loop:
        yield loop.index


def truth(builder: Any, value: Any) -> Any:
    """Converts a Numba boolean to one bit."""
    from numba.core import cgutils

    return cgutils.as_bool_bit(builder, value)


def nothing(context: Any) -> Any:
    """Returns the result of an intrinsic that returns nothing."""
    return context.get_dummy_value()


def data_of(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    """Returns the pointer to an array's first element."""
    return context.make_array(kind)(context, builder, array).data


def length_of(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    """Returns the size of an array's first dimension."""
    return builder.extract_value(context.make_array(kind)(context, builder, array).shape, 0)


def array_at(context: Any, builder: Any, kind: Any, data: Any, shape: list, strides: list, itemsize: Any) -> Any:
    """Builds an array over existing memory. Its references are not counted: the caller keeps the memory alive."""
    from numba.np.arrayobj import populate_array

    array = context.make_array(kind)(context, builder)
    populate_array(array, data=data, shape=shape, strides=strides, itemsize=itemsize, meminfo=None)
    return array._getvalue()


def fixed_tuple() -> Any:
    """Returns `to_fixed_tuple(values, length)` for kernels: it makes a tuple of the first values of a sequence."""
    from numba.np.unsafe.ndarray import to_fixed_tuple

    return to_fixed_tuple


# --- compiled functions ---

STAGES: dict[str, float] = defaultdict(float)  # processor seconds that compilation has taken in this process, by stage


@contextlib.contextmanager
def stage(name: str) -> Iterator[None]:
    """Adds the processor time of the block to a stage."""
    start = time.process_time()
    try:
        yield
    finally:
        STAGES[name] += time.process_time() - start


@cache
def pipeline() -> Any:
    """Returns Numba's compiler with only the passes that kernels need: no object mode, no expressions of arrays."""
    from numba.core import compiler, compiler_machinery, typed_passes, untyped_passes

    from tools.kernels import lean

    passes = (
        untyped_passes.TranslateByteCode, untyped_passes.FixupArgs, untyped_passes.IRProcessing,
        untyped_passes.DeadBranchPrune, untyped_passes.GenericRewrites, untyped_passes.ReconstructSSA,
        typed_passes.NopythonTypeInference, typed_passes.PreLowerStripPhis, lean.ownership(),
        lean.lowering(), typed_passes.NoPythonBackend,
    )  # fmt: skip

    class KernelCompiler(compiler.CompilerBase):
        def define_pipelines(self) -> list[Any]:
            manager = compiler_machinery.PassManager("kernel")
            for one in passes:
                manager.add_pass(one, one.__name__)
            manager.finalize()
            return [manager]

    return KernelCompiler


@cache
def _library_class() -> Any:
    """Returns the class of Numba's libraries that end as LLVM IR, with each function simplified on its own.

    Numba makes machine code of each function, and again inside every function that calls it. Here only whole kernels
    become machine code, once, together with what they call.
    """
    import llvmlite.binding as llvm
    from numba.core.codegen import JITCodeLibrary

    class IntermediateLibrary(JITCodeLibrary):
        def finalize(self) -> None:
            self._raise_if_finalized()
            for function in self._final_module.functions:
                if not function.is_declaration and function.linkage == llvm.Linkage.external:
                    function.linkage = "linkonce_odr"
            self._shared_module = self._final_module
            self._finalized = True

        def whole(self, entry: Any, name: str) -> Any:
            """Returns one optimized module: an entry (a module; its function `name`), this library, what it needs."""
            self._ensure_finalized()
            module = llvm.parse_assembly(str(entry))
            for library in reversed(_by_need(self, [], set())):  # only what is needed by then is linked
                module.link_in(library._get_module_for_linking(), preserve=True)
            for function in entry.functions:  # what the entry defines for others is used here alone, or not at all
                if function.blocks and function.name != name:
                    module.get_function(function.name).linkage = "internal"
            self._final_module = module
            self._optimize_final_module()
            return self._final_module

    return IntermediateLibrary


def _by_need(library: Any, found: list[Any], seen: set[Any]) -> list[Any]:
    """Returns a library and those that it needs, each after those it needs itself."""
    if library not in seen:
        seen.add(library)
        for needed in library._linking_libraries:
            _by_need(needed, found, seen)
        found.append(library)
    return found


@cache
def _replacements() -> list[tuple[Any, str, Any]]:
    """Returns the functions that replace Numba's while kernels are compiled: class or module, name, function."""
    from tools.kernels import lean, shortcuts

    return [*lean.replacements(), *shortcuts.replacements()]


@contextlib.contextmanager
def intermediate() -> Iterator[None]:
    """Makes Numba's compiler stop at LLVM IR. Other threads that compile wait until the block ends."""
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.registry import cpu_target

    context = cpu_target.target_context
    context.refresh()  # on first use this compiles Numba's own runtime, which needs machine code
    codegen = context.codegen()
    with global_compiler_lock:
        before = codegen._library_class
        codegen._library_class = _library_class()
        replaced = [(holder, name, holder.__dict__[name]) for holder, name, _ in _replacements()]
        for holder, name, function in _replacements():
            setattr(holder, name, function)
        context.get_executable = lambda *given: [].copy  # a new key of the right type for each function
        try:
            yield
        finally:
            for holder, name, function in replaced:
                setattr(holder, name, function)
            codegen._library_class = before
            del context.get_executable


_compiled_before: dict[Any, list[tuple[Any, tuple]]] = {}  # and the functions that they call, by what remains the same


def _like_before(same: Any, calls: tuple) -> Any:
    """Returns a function like one that was compiled before, but for the functions it calls; None if there is none.

    Their types must be the same, and whether they can fail, as nothing else of them is in the LLVM IR of the caller.
    """
    from numba.core.registry import cpu_target

    for compiled, called in _compiled_before.get(same, ()):
        module = compiled.library._get_module_for_linking().clone()
        defined = {function.name: function for function in module.functions}
        exchanged, alike = {}, True
        for old, new in zip(called, calls, strict=True):
            for takes, was in list(old.overloads.items()) if new is not old else ():
                if was.fndesc.mangled_name in defined:
                    new.compile(takes)
                    now = new.overloads[takes]
                    fails = [_fails(each) for each in (was, now)]
                    alike = alike and was.signature.return_type == now.signature.return_type and len(set(fails)) == 1
                    defined[was.fndesc.mangled_name].name = now.fndesc.mangled_name
                    exchanged[was.library] = now.library
        if alike:
            library = cpu_target.target_context.codegen().create_library(compiled.library.name)
            library._final_module = module
            for needed in compiled.library._linking_libraries:
                library.add_linking_library(exchanged.get(needed, needed))
            library.finalize()
            return compiled._replace(library=library)
    return None


def _fails(compiled: Any) -> bool:
    """Returns whether a function can fail, as its callers see it."""
    from tools.kernels import lean

    return not lean._never_fails(compiled.library, compiled.fndesc.mangled_name)


class Compiled:
    """A function compiled by Numba, for an entry that calls it (build.py).

    `calls`: functions in its closure that it does nothing with but call them. One that differs from another only in
    these is not compiled again.
    """

    def __init__(self, function: Callable, signature: str, options: dict[str, Any], calls: tuple = ()):
        from numba import njit, types
        from numba.core import sigutils

        given, back = sigutils.normalize_signature(signature)
        back = types.none if back is None or back == types.void else back
        others = [cell.cell_contents for cell in function.__closure__ or () if cell.cell_contents not in calls]
        same = function.__code__, signature, tuple([(type(each), each) for each in others])
        with stage("types and IR"), intermediate():
            self._compiled: Any = _like_before(same, calls) if calls else None
            if self._compiled is None:
                options = options | {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "pipeline_class": pipeline()}
                dispatcher = njit(back(*given), **options)(function)
                [self._compiled] = dispatcher.overloads.values()
                if calls:
                    _compiled_before.setdefault(same, []).append((self._compiled, calls))
        self._context = self._compiled.target_context
        self.returns, self.takes = self._compiled.signature.return_type, self._compiled.signature.args

    def declare(self, module: Any) -> Any:
        """Declares the function in the module of its entry."""
        return self._context.declare_function(module, self._compiled.fndesc)

    def call(self, builder: Any, function: Any, values: list[Any]) -> tuple[Any, Any, Any]:
        """Calls the function. Returns whether it failed (one bit), a pointer to the error, and the result."""
        call_conv = self._context.call_conv
        status, result = call_conv.call_function(builder, function, self.returns, self.takes, values)
        return status.is_error, status.excinfoptr, result

    def itemsize(self, kind: Any) -> int:
        """Returns the size of an array's element in bytes."""
        from numba.np.numpy_support import as_dtype  # LLVM would be asked by a module of its own

        return as_dtype(kind.dtype).itemsize

    def tuple_of(self, builder: Any, kind: Any, values: list[Any]) -> Any:
        """Builds a tuple of values in the form that the function takes."""
        return self._context.make_tuple(builder, kind, values)

    def array_at(self, builder: Any, kind: Any, address: Any, shape: list, strides: list) -> Any:
        """Builds an array at an address (a number) in the form that the function takes."""
        from llvmlite import ir

        data = builder.inttoptr(address, self._context.get_data_type(kind.dtype).as_pointer())
        itemsize = ir.Constant(ir.IntType(64), self.itemsize(kind))
        return array_at(self._context, builder, kind, data, shape, strides, itemsize)

    @property
    def library(self) -> Any:
        """The function's LLVM IR, for `linked`."""
        return self._compiled.library


def _kept_to_stack(function: Any) -> bool:
    attributes = b" ".join(function.attributes).decode()
    return all(each in attributes for each in _STACK)


# Flags of instructions, and functions, whose results depend on what LLVM finds best for a processor.
_LEFT_TO_LLVM = re.compile(r"\b(?:reassoc|contract|arcp|afn|fast|llvm\.fmuladd)\b")


def linked(entry: Any, name: str, library: Any, reduced: bool) -> bytes:
    """Compiles a module, linked with a library. Returns the object.

    Everything but the module's own name is hidden, as two objects may use one name for different things. `reduced`:
    with loop strength reduction, which takes longer than all else that makes machine code.
    """
    import llvmlite.binding as llvm

    if library is None:
        from numba.core.registry import cpu_target

        with intermediate():
            library = cpu_target.target_context.codegen().create_library(name)
            library.finalize()
    with stage("optimization"):
        module = library.whole(entry, name)
    if found := _LEFT_TO_LLVM.search(str(module)):
        raise NotImplementedError(f"{name}: {found[0]} lets LLVM choose results by the processor")
    for defined in (*module.functions, *module.global_variables):
        if not defined.is_declaration and defined.name != name:
            defined.linkage = "internal"
    for function in module.functions:
        if not function.is_declaration and not _kept_to_stack(function):
            raise NotImplementedError(f"{name}: {function.name} may use the stack as Windows does not let it")
    module.verify()
    with stage("machine code"):
        llvm.set_option("tensorgrad", f"-disable-lsr={'false' if reduced else 'true'}")
        return bytes(_machine.emit_object(module))
