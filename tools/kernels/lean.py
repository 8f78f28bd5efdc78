"""Makes Numba write less LLVM IR for the same code. What it writes by itself is four times what LLVM keeps of it.

Numba stores every structure (an array is one) in memory to read a field of it, and all variables that a second block
uses. Here they stay values, and a field that was put in is taken from where it came. What is computed remains the same,
and so does the code that LLVM makes of it. These functions replace Numba's while kernels are compiled (internals.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

from llvmlite import ir

from tools.kernels import fusing

_NO_INDEX = object()


# --- fields of values ---


def _single(indices: Any) -> Any:
    """Returns the one index of a field; `_NO_INDEX` if there are several."""
    if not isinstance(indices, tuple | list):
        return indices
    return indices[0] if len(indices) == 1 else _NO_INDEX


def _extracting(extract_value: Callable) -> Callable:
    """Takes a field from where it was put in, or from where it was taken out before, if that is known."""

    def extract(self: Any, agg: Any, idx: Any, name: str = "") -> Any:
        index = _single(idx)
        if index is _NO_INDEX:
            return extract_value(self, agg, idx, name)
        while isinstance(agg, ir.instructions.InsertValue):
            at = _single(agg.indices)
            if at is _NO_INDEX:
                break
            if at == index:
                return agg.value
            agg = agg.aggregate
        if isinstance(agg, ir.Constant) and (agg.constant is None or agg.constant is ir.Undefined):
            return ir.Constant(agg.type.elements[index], agg.constant)
        block = self.basic_block
        taken = self.__dict__.setdefault("_taken", {})
        found = taken.get((id(block), id(agg), index))
        if found is None:
            found = extract_value(self, agg, index, name)
            if block.instructions[-1] is found:  # not in between: what follows comes after it
                taken[id(block), id(agg), index] = found
        return found

    return extract


def _lean_proxy(cgutils: Any) -> dict[str, Callable]:
    """Returns methods for Numba's proxies of structures: they hold a value, and use memory only where they must.

    They must where a field is set in another block than the one in which the proxy was made.
    """
    from numba import types

    proxy = cgutils._StructProxy
    begin, getitem, setitem = proxy.__init__, proxy.__getitem__, proxy.__setitem__

    def __init__(self: Any, context: Any, builder: Any, value: Any = None, ref: Any = None) -> None:
        plain = type(self)._make_refs is proxy._make_refs or getattr(type(self), "_lean", False)
        if ref is not None or not plain or not isinstance(self, cgutils.ValueStructProxy):
            begin(self, context, builder, value, ref)
            return
        self._context, self._builder = context, builder
        self._datamodel = context.data_model_manager[self._fe_type]
        self._be_type = self._get_be_type(self._datamodel)
        if value is not None and value.type != self._be_type:
            raise AssertionError(f"bad value type: expected {self._be_type}, got {value.type}")
        self._held = ir.Constant(self._be_type, None) if value is None else value
        self._fields = {}  # set since, by index
        self._home, self._read_elsewhere = builder.basic_block, False

    def in_memory(self: Any) -> Any:
        """Returns the pointer to the structure in memory, to which it is written first."""
        builder = self._builder
        if self._read_elsewhere and not isinstance(self._fe_type, types.SliceType):  # those are set before all loops
            raise NotImplementedError(f"a field of {self._fe_type} may be set after it was read in a loop")
        with builder.goto_entry_block():
            pointer = builder.alloca(self._be_type)
        if builder.basic_block is self._home:
            builder.store(self._getvalue(), pointer)
        else:
            with builder.goto_block(self._home):
                builder.store(self._getvalue(), pointer)
        del self.__dict__["_held"]
        self._value = self._outer_ref = pointer
        return pointer

    def absent(self: Any, field: str) -> Any:
        if field.startswith("_"):
            if field in ("_value", "_outer_ref") and "_held" in self.__dict__:
                return in_memory(self)
            raise AttributeError(field)
        return self[self._datamodel.get_field_position(field)]

    def __getitem__(self: Any, index: int) -> Any:
        if "_held" not in self.__dict__:
            return getitem(self, index)
        if self._builder.basic_block is not self._home:
            self._read_elsewhere = True
        found = self._fields.get(index)
        return self._builder.extract_value(self._held, index) if found is None else found

    def __setitem__(self: Any, index: int, value: Any) -> None:
        if "_held" in self.__dict__:
            if self._builder.basic_block is self._home and value.type == self._be_type.elements[index]:
                self._fields[index] = value
                return
            in_memory(self)
        setitem(self, index, value)

    def _getvalue(self: Any) -> Any:
        if "_held" not in self.__dict__:
            return self._builder.load(self._outer_ref)
        if not self._fields:
            return self._held
        whole = len(self._fields) == len(self._be_type.elements)
        made = ir.Constant(self._be_type, ir.Undefined) if whole else self._held
        for index, value in sorted(self._fields.items()):
            made = self._builder.insert_value(made, value, index)
        return made

    def _setvalue(self: Any, value: Any) -> None:
        assert value.type == self._be_type, (value.type, self._be_type)
        if "_held" in self.__dict__ and self._builder.basic_block is self._home:
            self._held, self._fields = value, {}
        else:
            self._builder.store(value, self._value)

    return {
        "__init__": __init__, "__getattr__": absent, "__getitem__": __getitem__, "__setitem__": __setitem__,
        "_getvalue": _getvalue, "_setvalue": _setvalue,
    }  # fmt: skip


def _within_bounds(basic_indexing: Callable) -> Callable:
    """Indexes arrays as kernels do: indices are never negative, and slices begin within the array.

    Numba's code for one slice counts negative limits from the end, which takes a hundred instructions.
    """
    from numba import types
    from numba.core import cgutils

    zero = ir.Constant(ir.IntType(64), 0)

    def indexed(context: Any, builder: Any, kind: Any, array: Any, kinds: Any, indices: Any, **options: Any) -> Any:
        if not all(isinstance(k, types.Integer) or (type(k) is types.SliceType and not k.has_step) for k in kinds):
            return basic_indexing(context, builder, kind, array, kinds, indices, **options)
        shape = cgutils.unpack_tuple(builder, array.shape, kind.ndim)
        strides = cgutils.unpack_tuple(builder, array.strides, kind.ndim)
        first, lengths, steps = [], [], []
        for k, index, length, step in zip(kinds, indices, shape, strides, strict=False):
            if isinstance(k, types.Integer):
                first.append(context.cast(builder, index, k, types.intp))
                continue
            given = context.make_helper(builder, k, value=index)
            last = builder.select(builder.icmp_signed("<", given.stop, length), given.stop, length)
            size = builder.sub(last, given.start)
            lengths.append(builder.select(builder.icmp_signed("<", size, zero), zero, size))
            steps.append(step)
            first.append(given.start)
        data = cgutils.get_item_pointer(context, builder, kind, array, first)
        return data, lengths + shape[len(kinds) :], steps + strides[len(kinds) :]

    return indexed


def _arrays(make_array: Callable) -> Callable:
    """Returns the class of proxies for a type of arrays, once for each, that reads the shape like any other field."""
    from numba import types
    from numba.core import cgutils

    @cache
    def made(kind: Any) -> Any:
        if type(kind) is not types.Array:
            return make_array(kind)
        base = cgutils.create_struct_proxy(kind)
        return type(base.__name__, (base,), {"_lean": True})

    return made


# --- calls ---


def _call_function(call: Callable) -> Callable:
    """Calls a function of Numba's, and looks at whether it failed, not at how."""
    from numba import types
    from numba.core import callconv, cgutils

    def call_function(self: Any, builder: Any, callee: Any, resty: Any, argtys: Any, args: Any, attrs: Any = None):
        if isinstance(resty, types.Optional) or attrs is not None:
            return call(self, builder, callee, resty, argtys, args, attrs)
        with builder.goto_entry_block():
            result = builder.alloca(self.get_return_type(resty).pointee)
            why = builder.alloca(callconv.excinfo_ptr_t)
        values = self._get_arg_packer(argtys).as_arguments(builder, args)
        code = builder.call(callee, [result, why, *values])
        failed = builder.icmp_signed("!=", code, callconv.RETCODE_OK)
        status = callconv.Status(
            code=code, is_ok=None, is_none=None, is_error=failed, is_stop_iteration=None, is_python_exc=None,
            is_user_exc=None, excinfoptr=why,
        )  # fmt: skip
        value = builder.load(result) if resty is not types.none else cgutils.get_null_value(result.type.pointee)
        return status, self.context.get_returned_value(builder, resty, value)

    return call_function


def _never_fails(library: Any, name: str) -> bool:
    """Returns whether a function that was simplified only ever returns 0."""
    function = str(library._final_module.get_function(name))
    return set(re.findall(r"^  ret i32 (\S+)", function, re.MULTILINE)) == {"0"}


def _user_function(make: Callable) -> Callable:
    """Returns what calls a function of Numba's. Whether it failed is not asked if it never does."""
    from numba import types
    from numba.core.imputils import impl_ret_new_ref

    def user_function(fndesc: Any, libs: Any) -> Any:
        made, back = make(fndesc, libs), fndesc.restype
        if isinstance(back, types.Optional) or len(libs) != 1 or not _never_fails(libs[0], fndesc.mangled_name):
            return made

        def call(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            function = context.declare_function(builder.module, fndesc)
            _, value = context.call_conv.call_function(builder, function, back, fndesc.argtypes, given)
            if signature.return_type != back or value.type != context.get_value_type(back):
                raise TypeError(f"function returned {value.type} but expect {signature.return_type}")
            return impl_ret_new_ref(context, builder, back, value)

        call.signature, call.libs = made.signature, made.libs  # type: ignore[attr-defined]
        return call

    return user_function


def _propagating(propagate: Callable) -> Callable:
    """Returns from a function that has called one that failed. Kernels catch no errors."""

    def return_status_propagate(self: Any, builder: Any, status: Any) -> None:
        why = status.excinfoptr
        if status.is_ok is not None:  # Numba's own status
            propagate(self, builder, status)
            return
        builder.store(builder.load(why), self._get_excinfo_argument(builder.function))
        builder.ret(status.code)

    return return_status_propagate


def _raising(self: Any, builder: Any, exc: Any, exc_args: Any = None, loc: Any = None, func_name: Any = None) -> None:
    """Returns from a function that raises. Where it stands in which file is left out: that is another machine's."""
    from numba.core import callconv

    self.set_static_user_exc(builder, exc, exc_args=exc_args)
    builder.ret(callconv.RETCODE_USEREXC)


# --- references ---


def _meminfos(self: Any, builder: Any, kind: Any, value: Any) -> list:
    """Returns the counters of references inside a value, without taking out what has none."""
    model = self._context.data_model_manager[kind]
    found = [(kind, model.get_nrt_meminfo(builder, value))] if model.has_nrt_meminfo() else []
    for inside, getter in model.traverse(builder):
        if self._context.data_model_manager[inside].contains_nrt_meminfo():
            found += self.get_meminfos(builder, inside, getter(value))
    return found


# --- statements ---


def _owns(state: Any) -> bool:
    """Returns whether a function may own an array: by allocating it, or by returning one."""
    from numba import types
    from numba.core import ir as nodes

    borrowing = ("getitem", "static_getitem", "getattr", "build_tuple", "cast", "phi", "exhaust_iter")
    models = state.targetctx.data_model_manager
    if models[state.return_type].contains_nrt_meminfo():
        return True
    for block in state.func_ir.blocks.values():
        for made in block.find_insts(nodes.Assign):
            value = made.value
            if not isinstance(value, nodes.Expr):
                continue
            if not models[state.typemap[made.target.name]].contains_nrt_meminfo():
                continue
            if value.op == "call":
                called = state.typemap[value.func.name]
                if isinstance(called, types.BoundFunction) and called.typing_key == "array.reshape":
                    continue
                return True
            if value.op not in borrowing:
                return True
    return False


@cache
def ownership() -> Any:
    """Returns the pass that finds out when arrays are no longer used, of functions that own some."""
    from numba.core import compiler_machinery, typed_passes

    @compiler_machinery.register_pass(mutates_CFG=False, analysis_only=True)
    class Ownership(typed_passes.IRLegalization):
        _name = "ownership"

        def run_pass(self, state: Any) -> bool:
            if state.func_ir.is_generator:
                raise NotImplementedError("kernels cannot contain generators")
            state.func_ir.owns_arrays = _owns(state)
            return super().run_pass(state) if state.func_ir.owns_arrays else True

    return Ownership


@cache
def lowering() -> Any:
    """Returns the pass with which Numba translates a function to LLVM IR.

    References are not counted where nothing is owned: a function that only indexes the arrays it is given owns none, as
    its caller keeps them alive. Variables that are assigned once are values; Numba keeps them in memory if another
    block uses them.
    """
    from numba import types
    from numba.core import analysis, cgutils, compiler_machinery, lowering, typed_passes
    from numba.core import ir as nodes
    from numba.core.unsafe import eh

    class KernelLower(lowering.Lower):
        def lower_normal_function(self, fndesc: Any) -> None:
            if not self.func_ir.owns_arrays:
                self.context.enable_nrt = False  # this context belongs to this function alone
                self.context.__dict__.pop("nrt", None)
            self._find_values()
            super().lower_normal_function(fndesc)

        # --- references ---

        def _counted(self, kind: Any) -> bool:
            return bool(self.context.data_model_manager[kind].contains_nrt_meminfo())

        def _owned(self, name: str) -> bool:
            return self.context.enable_nrt and self._counted(self.typeof(name))

        # --- variables ---

        def _find_singly_assigned_variable(self) -> None:
            self._singly_assigned_vars: set[str] = set()  # once it is known what is owned, `_find_values` fills it
            self._blk_local_varmap: dict[str, Any] = {}

        def _find_values(self) -> None:
            """Finds the variables that are assigned once, before all that uses them."""
            where: dict[str, list[int]] = {}
            for offset, block in self.blocks.items():
                for statement in block.body:
                    if isinstance(statement, nodes.Assign):
                        where.setdefault(statement.target.name, []).append(offset)
                        if isinstance(statement.value, nodes.Global) and statement.value.value is eh.mark_try_block:
                            raise NotImplementedError("kernels cannot catch errors")
            once = {name: found[0] for name, found in where.items() if len(found) == 1}
            for name in analysis.must_use_alloca(self.blocks):
                once.pop(name, None)
            used = analysis.compute_use_defs(self.blocks).usemap
            dominators = analysis.compute_cfg_from_blocks(self.blocks).dominators()
            for offset, names in used.items():
                for name in names:
                    first = once.get(name)
                    if first is not None and (
                        first >= offset or first not in dominators.get(offset, ()) or self._owned(name)
                    ):
                        del once[name]
            self._singly_assigned_vars = set(once)

        def alloca_lltype(self, name: str, lltype: Any, datamodel: Any = None) -> Any:
            if self._owned(name):
                return super().alloca_lltype(name, lltype, datamodel)
            with self.builder.goto_entry_block():
                return self.builder.alloca(lltype, name=name)

        def storevar(self, value: Any, name: str, argidx: Any = None) -> None:
            if name in self._singly_assigned_vars:
                self._blk_local_varmap[name] = value
            elif self._owned(name):
                super().storevar(value, name, argidx)
            else:
                self._alloca_var(name, self.typeof(name))
                self.builder.store(value, self.varmap[name])

        def delvar(self, name: str) -> None:
            if self._owned(name):
                super().delvar(name)

        # --- blocks ---

        def pre_block(self, block: Any) -> None:
            self._cur_ir_block = block  # the rest finds blocks that handle errors, and variables that are deleted

        def lower_block(self, block: Any) -> None:
            self.pre_block(block)
            for statement in block.body:
                self.loc = statement.loc
                self.lower_inst(statement)
            self.post_block(block)

        # --- loops over ranges ---

        def lower_expr(self, resty: Any, expr: Any) -> Any:
            if expr.op == "getiter" and isinstance(self.typeof(expr.value.name), types.RangeType):
                return self._begin_range(resty, self.loadvar(expr.value.name))
            if expr.op == "iternext" and isinstance(self.typeof(expr.value.name), types.RangeIteratorType):
                return self._next_of_range(resty, self.loadvar(expr.value.name))
            return super().lower_expr(resty, expr)

        def _begin_range(self, kind: Any, given: Any) -> Any:
            """Begins a loop over a range, as Numba does. Of a step that is known nothing has to be looked at."""
            builder = self.builder
            start, stop, step = (builder.extract_value(given, n) for n in range(3))
            zero, one = start.type(0), start.type(1)
            known = isinstance(step, ir.Constant) and isinstance(step.constant, int)
            with builder.goto_entry_block():
                at, count = builder.alloca(start.type), builder.alloca(start.type)
            builder.store(start, at)
            length = builder.sub(stop, start)
            upwards = builder.icmp_signed(">", length, zero)
            if known and step.constant == 1:
                builder.store(builder.select(upwards, length, zero), count)
            else:
                if not known:
                    with cgutils.if_unlikely(builder, builder.icmp_unsigned("==", step, zero)):
                        message = ("range() arg 3 must not be zero",)
                        self.call_conv.return_user_exc(builder, ValueError, message)
                away = builder.xor(upwards, builder.icmp_signed(">", step, zero))
                with builder.if_else(away) as (nothing, something):
                    with nothing:
                        builder.store(zero, count)
                    with something:
                        rest = builder.srem(length, step)
                        rest = builder.select(upwards, rest, builder.neg(rest))
                        further = builder.select(builder.icmp_signed(">", rest, zero), one, zero)
                        builder.store(builder.add(builder.sdiv(length, step), further), count)
            made = cgutils.create_struct_proxy(kind)(self.context, builder)
            made.iter, made.stop, made.step, made.count = at, stop, step, count
            return made._getvalue()

        def _next_of_range(self, kind: Any, given: Any) -> Any:
            builder = self.builder
            at, step, count = (builder.extract_value(given, n) for n in (0, 2, 3))
            value, left = builder.load(at), builder.load(count)
            valid = builder.icmp_signed(">", left, left.type(0))
            with builder.if_then(valid):
                builder.store(builder.sub(left, left.type(1), flags=["nsw"]), count)
                builder.store(builder.add(value, step), at)
            made = cgutils.create_struct_proxy(kind)(self.context, builder)
            made.first, made.second = value, valid
            return made._getvalue()

    @compiler_machinery.register_pass(mutates_CFG=True, analysis_only=False)
    class KernelLowering(typed_passes.NativeLowering):
        _name = "kernel_lowering"
        lowering_class = KernelLower

    return KernelLowering


def replacements() -> list[tuple[Any, str, Any]]:
    """Returns the functions that replace Numba's: class or module, name, function."""
    from numba.core import base, callconv, cgutils, fastmathpass
    from numba.core.runtime import context
    from numba.np import arrayobj

    cpu = callconv.CPUCallConv
    return [
        (ir.IRBuilder, "extract_value", _extracting(ir.IRBuilder.extract_value)),
        *((cgutils._StructProxy, name, function) for name, function in _lean_proxy(cgutils).items()),
        (arrayobj, "make_array", _arrays(arrayobj.make_array)),
        (arrayobj, "basic_indexing", _within_bounds(arrayobj.basic_indexing)),
        (cpu, "call_function", _call_function(cpu.call_function)),
        (base, "user_function", _user_function(base.user_function)),
        (cpu, "return_status_propagate", _propagating(cpu.return_status_propagate)),
        (cpu, "return_user_exc", _raising),
        (context.NRTContext, "get_meminfos", _meminfos),
        (fastmathpass, "rewrite_module", fusing.fused),
    ]
