"""Every use of undocumented parts of Numba and llvmlite, and the versions they were tested with.

Numba's internals may change in any version, and a changed memory layout would crash rather than raise an error. So no
other file uses its compiler contexts, data models or the loader of machine code. `untried` reports whether the
installed version is one that the tests ran with; with any other version no kernel is used.

The program needs only llvmlite, and only the part of this file above `Compiled`. The rest imports Numba when called.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

# The first version that was tested, and the first that was not (pyproject.toml has the same).
TESTED = {"numba": ("0.61", "0.69"), "llvmlite": ("0.44", "0.51")}
_I64, _I32 = ir.IntType(64), ir.IntType(32)


@cache
def version(name: str) -> str:
    """Returns the version of an installed package. Raises: PackageNotFoundError if it is not installed.

    The version is in the name of a folder next to the package. importlib.metadata also finds other locations, but is
    slow to import.
    """
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.origin:
        beside = os.listdir(os.path.dirname(os.path.dirname(spec.origin)))
        found = [file for file in beside if file.startswith(f"{name}-") and file.endswith(".dist-info")]
        if len(found) == 1:
            return found[0].removeprefix(f"{name}-").removesuffix(".dist-info")
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


# --- machine code in this process ---


def host_cpu() -> tuple[str, str]:
    """Returns the processor's name and features, as LLVM calls them."""
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def triple() -> str:
    """Returns LLVM's name for the system and processor of this process."""
    return llvm.get_process_triple()


def machine(name: str, features: str) -> Any:
    """Returns the LLVM target machine for this process."""
    with contextlib.suppress(Exception):  # newer versions need no such call, and raise
        llvm.initialize()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(triple())
    return target.create_target_machine(
        cpu=name, features=features, opt=3, codemodel="jitdefault", jit=True,
        reloc="static" if target.name.startswith("x86") else "default",
    )  # fmt: skip


class Loader:
    """Loads objects into this process and resolves their functions. `symbols`: addresses of the names that they use."""

    def __init__(self, name: str, features: str, symbols: dict[str, int]):
        for symbol, address in symbols.items():
            llvm.add_symbol(symbol, address)
        self.engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine(name, features))

    def missing(self, names: list[str]) -> list[str]:
        """Returns the names that do not exist in this process."""
        return [name for name in names if not llvm.address_of_symbol(name)]

    def load(self, data: bytes, entry: str) -> int:
        """Loads an object and returns the address of its entry."""
        self.engine.add_object_file(llvm.ObjectFileRef.from_data(data))
        self.engine.finalize_object()
        return self.engine.get_function_address(entry)


def python_function(value: Any) -> Any:
    """Returns the Python function that a Numba function was made from; any other value unchanged."""
    return getattr(value, "py_func", None) or getattr(value, "_defn", value)


# --- building blocks of LLVM IR ---


def declared(module: Any, kind: Any, name: str) -> Any:
    """Returns the function of this name in a module, declaring it if needed."""
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


# --- faster compilation ---


def _remembering_types(get_call_type: Callable) -> Callable:
    """Keeps the types of calls of built-in functions, which Numba infers anew each time it looks at a statement."""
    known: dict[Any, Any] = {}

    def get_call_type_once(self: Any, context: Any, args: Any, kws: Any) -> Any:
        try:
            key = (self, args, tuple(sorted(kws.items())))
            found = known.get(key)
        except TypeError:
            return get_call_type(self, context, args, kws)
        if found is None:
            found = get_call_type(self, context, args, kws)
            if self._impl_keys.get(found.args) == self.typing_key:  # not compiled by the options of one caller
                known[key] = found
        return found

    return get_call_type_once


def _remembering_sizes(get_abi_sizeof: Callable) -> Callable:
    """Keeps the sizes of LLVM types, for each of which Numba makes a module."""
    known: dict[str, int] = {}

    def get_abi_sizeof_once(self: Any, kind: Any) -> int:
        name = str(kind)
        if "%" in name:  # it names another type
            return get_abi_sizeof(self, kind)
        if name not in known:
            known[name] = get_abi_sizeof(self, kind)
        return known[name]

    return get_abi_sizeof_once


def _same_options(compare: Callable) -> Callable:
    def equal(self: Any, other: Any) -> Any:
        return True if self is other or self._values == getattr(other, "_values", None) else compare(self, other)

    return equal


def _without_lifetimes(run: Callable) -> Callable:
    """Leaves out what only generators and loops to be lifted out of a function need: which variables live where."""
    from numba.core import postproc, transforms

    def run_shortly(self: Any, emit_dels: bool = False, extend_lifetimes: bool = False) -> None:
        if emit_dels or self.func_ir.is_generator:
            run(self, emit_dels, extend_lifetimes)
            return
        self.func_ir.blocks = transforms.canonicalize_cfg(self.func_ir.blocks)
        self.func_ir.variable_lifetime = postproc.VariableLifetime(self.func_ir.blocks)
        self.func_ir.generator_info = None

    return run_shortly


@cache
def _shortcuts() -> list[tuple[Any, str, Any]]:
    """Returns functions that replace Numba's while kernels are compiled: class, name, function."""
    from numba.core import base, postproc, targetconfig
    from numba.core.types import functions

    return [
        (functions.BaseFunction, "get_call_type", _remembering_types(functions.BaseFunction.get_call_type)),
        (base.BaseContext, "get_abi_sizeof", _remembering_sizes(base.BaseContext.get_abi_sizeof)),
        (targetconfig.TargetConfig, "__eq__", _same_options(targetconfig.TargetConfig.__eq__)),
        (targetconfig.TargetConfig, "__hash__", lambda self: hash(type(self))),
        (postproc.PostProcessor, "run", _without_lifetimes(postproc.PostProcessor.run)),
    ]


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

    passes = (
        untyped_passes.TranslateByteCode, untyped_passes.FixupArgs, untyped_passes.IRProcessing,
        untyped_passes.DeadBranchPrune, untyped_passes.GenericRewrites, untyped_passes.ReconstructSSA,
        typed_passes.NopythonTypeInference, typed_passes.PreLowerStripPhis, typed_passes.IRLegalization,
        typed_passes.NativeLowering, typed_passes.NoPythonBackend,
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
            """Returns one optimized module: an entry (a module; its function `name`), this library and all it needs."""
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
        replaced = [(holder, name, getattr(holder, name)) for holder, name, _ in _shortcuts()]
        for holder, name, function in _shortcuts():
            setattr(holder, name, function)
        context.get_executable = lambda *given: [].copy  # a new key of the right type for each function
        try:
            yield
        finally:
            for holder, name, function in replaced:
                setattr(holder, name, function)
            codegen._library_class = before
            del context.get_executable


class Compiled:
    """A function compiled by Numba, for an entry that calls it (build.py)."""

    def __init__(self, function: Callable, signature: str, options: dict[str, Any]):
        from numba import njit, types
        from numba.core import sigutils

        given, back = sigutils.normalize_signature(signature)
        back = types.none if back is None or back == types.void else back
        with stage("types and IR"), intermediate():
            options = options | {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "pipeline_class": pipeline()}
            dispatcher = njit(back(*given), **options)(function)
        [self._compiled] = dispatcher.overloads.values()
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
        return self._context.get_abi_sizeof(self._context.get_data_type(kind.dtype))

    def tuple_of(self, builder: Any, kind: Any, values: list[Any]) -> Any:
        """Builds a tuple of values in the form that the function takes."""
        return self._context.make_tuple(builder, kind, values)

    def array_at(self, builder: Any, kind: Any, address: Any, shape: list, strides: list) -> Any:
        """Builds an array at an address (a number) in the form that the function takes."""
        data = builder.inttoptr(address, self._context.get_data_type(kind.dtype).as_pointer())
        itemsize = ir.Constant(_I64, self.itemsize(kind))
        return array_at(self._context, builder, kind, data, shape, strides, itemsize)

    def linked(self, entry: Any, name: str, cpu: str, features: str) -> tuple[bytes, list[str]]:
        """Links the function with its entry, a module. Returns the object for a processor, and names it declares.

        Everything but the entry's own name is hidden, as two objects may use one name for different things.
        """
        with stage("optimization"):
            module = self._compiled.library.whole(entry, name)
        for defined in (*module.functions, *module.global_variables):
            if not defined.is_declaration and defined.name != name:
                defined.linkage = "internal"
        module.verify()
        with stage("machine code"):
            data = machine(cpu, features).emit_object(module)
        return data, [f.name for f in module.functions if f.is_declaration and not f.name.startswith("llvm.")]
