"""Forward mode: a level, on which tensors have tangents (`torch.func.jvp`, `torch.autograd.forward_ad`).

While a level is on, every op also computes the tangents of its results from those of its inputs, by the rule that its
row implies (transforms/tangents.py). Nothing is recorded for it: a tangent lives as long as its value.

A level keeps its tangents in a table of its own, by the array that they belong to, and forgets each when that array is
freed. So a tensor needs no field for them; all tensors over the same array (what a node saved for backward, say) have
the same tangent; and when the level ends, all are gone. `detach()` makes a new array over the same memory: it has none.

Levels nest. While an inner level computes tangents it is off itself, so that these have tangents on the levels further
out only: derivatives along different directions are never confused.

A tangent lies in memory as its value does, and that of a view is a view of the base's tangent. So a write through a
view reaches the tangents of the base and of all its other views.
"""

from __future__ import annotations

import weakref
from typing import Any

from tensorgrad.autograd.function import Function
from tensorgrad.autograd.modes import GRAD
from tensorgrad.autograd.views import replay, steps_now
from tensorgrad.dispatch.out import is_expanded
from tensorgrad.layouts import contiguous_format, dense_order, inverse
from tensorgrad.rows.kernel_tables import OPS
from tensorgrad.rows.op import LINEAR_KINDS
from tensorgrad.rows.switches import LOCAL
from tensorgrad.tensor import Tensor, differentiable, tensors_in
from tensorgrad.transforms.batch import Batch, BatchedArray
from tensorgrad.transforms.tangents import by_kernel, has_kernel, rule_of
from tensorgrad.transforms.transform import Off, Transform, run_by_outer


class _Reference(weakref.ref):
    """A weak reference to an array, which knows its key."""

    __slots__ = ("key",)

    key: int


class Level(Transform):
    """One level of forward mode, on within a `with` block.

    >>> from tensorgrad.transforms.forward import Level
    >>> with Level() as level:
    ...     x = level.dual(torch.tensor(3.0), torch.tensor(1.0))
    ...     level.tangent_of(x * x)
    tensor(6.)
    """

    name = "forward mode"
    on_arrays = True  # whether rows' kernels for tangents may be used

    def __init__(self, of_duals: bool = False) -> None:
        """`of_duals`: a level of `torch.autograd.forward_ad`, where a function that returns a view must have a `jvp`
        that does."""
        self.of_duals = of_duals
        self.tangents: dict[int, tuple[_Reference, Tensor]] = {}  # id of the array -> its tangent
        tangents = self.tangents
        self.forget = lambda dead: tangents.pop(dead.key, None)

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        self.tangents.clear()

    # --- tangents ---

    def dual(self, value: Tensor, tangent: Tensor) -> Tensor:
        """A tensor over the same memory that has this tangent."""
        with self.off():
            made = run_by_outer(OPS["alias"], (value,))
            storage, array = value._storage, value._array
            if storage.nbytes() != array.nbytes and not is_expanded(
                array
            ):  # a part of the memory: as_strided may reach beyond it
                whole = tangent.new_zeros(storage.nbytes() // array.itemsize, dtype=value.dtype)
                tangent = whole.as_strided(array.shape, value.stride(), value.storage_offset()).copy_(tangent)
            self.give(made, tangent)
        return made

    def primal(self, tensor: Tensor) -> Tensor:
        """A tensor over the same memory that has no tangent."""
        with self.off():
            return run_by_outer(OPS["alias"], (tensor,))

    def tangent_of(self, tensor: Tensor) -> Tensor | None:
        """The tangent of a tensor; None if it has none. That of a view follows from its base's, if need be.

        What `vmap` made of a tensor without a batch, to be used beside others with one, has the tangent of that.
        """
        entry = self._kept(tensor._array)
        if entry is not None:
            return entry[1]
        if tensor._view is None or not self.tangents:
            return None
        of_base = self._kept(tensor._view[0]._array)
        if of_base is None:
            return None
        with self.off():
            tangent = replay(of_base[1], steps_now(tensor))
        self._keep(tensor._array, tangent)
        return tangent

    def give(self, tensor: Tensor, tangent: Tensor, among: tuple = ()) -> None:
        """Sets a tangent: of the value's shape, dtype and layout. It is copied if it is one `among` these.

        To be called with the level off.
        """
        array = tensor._array
        if tangent._array.shape != array.shape:
            tangent = tangent.expand(array.shape)
        if array.__class__ is BatchedArray and array.mapped and not array.level.value_of(tangent)[1]:
            tangent = tensor.new_zeros(array.shape) + tangent  # a write may give each sample another one
        if tangent._array.dtype != array.dtype:
            if array.dtype.kind != "c" and tangent.is_complex():
                tangent = tangent.real
            tangent = tangent.to(tensor.dtype)
        if not _alike(tangent._array, array):
            tangent = _laid_out(tangent, array)
        elif among and (tangent._view is not None or any(tangent._array is t._array for t in among)):
            tangent = tangent.clone()
        self._keep(array, tangent)

    def _kept(self, array: Any) -> tuple[_Reference, Tensor] | None:
        entry = self.tangents.get(id(array))
        while entry is None and array.__class__ is BatchedArray and not array.mapped:
            array = array.value._array
            entry = self.tangents.get(id(array))
        return entry

    def _keep(self, array: Any, tangent: Tensor) -> None:
        reference = _Reference(array, self.forget)
        reference.key = key = id(array)
        self.tangents[key] = reference, tangent

    # --- ops ---

    def run(self, op: Any, args: tuple) -> Any:
        """Runs an op, and gives its results their tangents."""
        found = self.tangents_among(args)
        if found is None:
            with self.off():
                return run_by_outer(op, args)
        if op.jvp_kernel and self.on_arrays and not _recorded(args, found) and has_kernel(op, args, self.around):
            with self.off():
                result = run_by_outer(op, args)
                self.give(result, by_kernel(op, args, found, result))
            return result
        rule = rule_of(op)
        if rule is None and op.twin is not None:
            return self._by_twin(op, args)
        with self.off():
            result = run_by_outer(op, args)
            if rule is not None:
                self.give_from(op, args, found, result)
        return result

    def give_from(self, op: Any, args: tuple, tangents: list, result: Any) -> None:
        """Gives the results of an op the tangents that follow from those of its arguments."""
        among = () if op.kind in LINEAR_KINDS else tuple(tensors_in(tangents))
        before, LOCAL.computing_tangents = LOCAL.computing_tangents, True
        try:
            found = rule_of(op)(op, args, tangents, result)  # type: ignore[misc]
        finally:
            LOCAL.computing_tangents = before
        if len(op.outputs) > 1 and found is not None:
            found = found[: op.differentiable_outputs] if isinstance(found, tuple) else (found,)
        self.give_all(result, found, among)

    def give_all(self, result: Any, tangents: Any, among: tuple) -> None:
        """Gives one or several results their tangents."""
        if tangents is None:
            return
        if isinstance(result, Tensor):
            if differentiable(result._array.dtype):
                self.give(result, tangents, among)
            return
        for tensor, tangent in zip(result, tangents, strict=False):
            if tangent is not None and differentiable(tensor._array.dtype):
                self.give(tensor, tangent, among)

    def tangents_among(self, args: tuple) -> list | None:
        """The tangents of the arguments, in lists as these are; None if there are none at all."""
        some, found = False, []
        for value in args:
            tangent: Any = None
            if isinstance(value, Tensor):
                tangent = self.tangent_of(value)
            elif isinstance(value, list | tuple) and value and isinstance(value[0], Tensor):
                tangent = [self.tangent_of(v) if isinstance(v, Tensor) else None for v in value]
                if not any(t is not None for t in tangent):
                    tangent = None
            some = some or tangent is not None
            found.append(tangent)
        return found if some else None

    def _by_twin(self, op: Any, args: tuple) -> Any:
        """Runs an op's twin, whose ops compute tangents. If the op is recorded, it runs too: backward is its own.

        Within `vmap` the op would run by its twin again, and what that records has no tangents on this level.
        """
        with Off((*self.around, self)):
            by_twin = op.twin(*args)
        recorded = GRAD.enabled and any(t.requires_grad for t in tensors_in(args))
        if not recorded or any(t.__class__ is Batch for t in self.around):
            return by_twin
        with self.off():
            result = run_by_outer(op, args)
            for own, other in zip(*((r,) if isinstance(r, Tensor) else r for r in (result, by_twin)), strict=False):
                self.same(own, other)
        return result

    def same(self, tensor: Tensor, other: Tensor) -> None:
        """Gives a tensor the tangent of another one, if that has one."""
        tangent = self.tangent_of(other)
        if tangent is not None:
            self.give(tensor, tangent)

    def refuse_out(self, op: Any, tensors: Any) -> None:
        """Raises: NotImplementedError if one of the tensors has a tangent."""
        if any(self.tangent_of(t) is not None for t in tensors_in(tensors)):
            raise NotImplementedError(
                f"Trying to use forward AD with {op.name}_out that does not support it because it is an out= function"
            )

    # --- writes ---

    def written(self, tensor: Tensor, result: Tensor) -> None:
        """Writes the tangent of `result` over that of `tensor`; zeros if it has none."""
        if not differentiable(tensor._array.dtype):
            return
        new, old = self.tangent_of(result), self.tangent_of(tensor)
        if new is None and old is None:
            return
        with self.off():
            if new is None:
                old.zero_()  # type: ignore[union-attr]
            else:
                self._write(tensor, new)

    def _write(self, tensor: Tensor, new: Tensor) -> None:
        """Writes over the tangent of a tensor, and so over that of its base; to be called with the level off."""
        old = self.tangent_of(tensor)
        if old is None and tensor._view is not None:
            base = tensor._view[0]
            self.give(base, new.new_zeros(base._array.shape, dtype=base.dtype))
            old = self.tangent_of(tensor)
        if old is None:
            self.give(tensor, new, (new,))
        else:
            old.copy_(new)

    def keeps_values(self, tensors: list) -> bool:
        """Whether a value or its tangent requires grad: the rules for tangents keep values, too."""
        tangents = [self.tangent_of(t) for t in tensors]
        return any(t is not None for t in tangents) and _recorded(tensors, tangents)

    def copied(self, array: Any, copy: Any) -> None:
        """The copy has a copy of the tangent."""
        entry = self._kept(array)
        if entry is not None:
            with self.off():
                self._keep(copy, entry[1].clone())

    def tangent_shown(self, tensor: Tensor) -> str | None:
        """The text of a tensor's tangent, for its `repr`; None if it has none."""
        tangent = self.tangent_of(tensor)
        if tangent is None:
            return None
        with self.off():
            return repr(tangent)

    def hand_over(self, old: Tensor, new: Tensor, change: Any) -> None:
        """Gives a tensor the tangent of another one, with `change` applied to it."""
        tangent = self.tangent_of(old)
        if tangent is not None:
            self._keep(new._array, change(tangent))

    # --- custom functions ---

    def call_function(self, function: Any, args: tuple, kwargs: dict) -> tuple:
        """Runs a custom function, and gives its results the tangents that its `jvp` returns.

        Raises: NotImplementedError if it has none; RuntimeError if it does not return one for each result, or does not
        write in place, or return a view, where the function does.
        """
        tangents: list = [self.tangent_of(a) if isinstance(a, Tensor) else None for a in args]
        with self.off():
            results, ctx = function._applied(args, kwargs)
            if all(t is None for t in tangents):
                return results, ctx
            if function.jvp is Function.jvp:
                Function.jvp(ctx)
            before = [None if t is None else (t, t._storage.version) for t in tangents]
            if ctx.materialize_grads:
                for i, (value, t) in enumerate(zip(args, tangents, strict=True)):
                    if t is None and isinstance(value, Tensor) and differentiable(value._array.dtype):
                        tangents[i] = value.new_zeros(value._array.shape)
            given = function.jvp(ctx, *tangents)
            given = given if isinstance(given, tuple) else (given,)
            for nr, tangent in enumerate(given):
                if tangent is not None and not isinstance(tangent, Tensor):
                    raise RuntimeError(
                        f"expected Variable or None (got {type(tangent).__name__}) for grad output {nr}."
                    )
            outputs = results if isinstance(results, tuple) else (results,)
            if len(given) != len(outputs):
                raise RuntimeError(
                    "Function's jvp returned an invalid number of forward gradients (expected "
                    f"{len(outputs)} but got {len(given)})"
                )
            constant = getattr(ctx, "_without_tangent", ())
            for nr, (output, tangent) in enumerate(zip(outputs, given, strict=True)):
                if not isinstance(output, Tensor):
                    continue
                if nr not in constant and differentiable(output._array.dtype):
                    self._give_result(output, tangent, args, before)
                elif tangent is not None:
                    raise RuntimeError(
                        f"Function's jvp returned a gradient at position {nr}, but  the corresponding forward output "
                        "is not a differentiable Tensor.You should return None at that position instead."
                    )
        return results, ctx

    def _give_result(self, output: Tensor, tangent: Tensor | None, args: tuple, before: list) -> None:
        """Gives one result its tangent. `before`: the tangents of the arguments, and their versions before `jvp`."""
        if tangent is None:
            tangent = output.new_zeros(output._array.shape)
        check_shape(output, tangent)
        written = next((i for i, value in enumerate(args) if value is output), None)
        if written is not None and before[written] is not None:
            own, version = before[written]
            if tangent._storage.version == version:
                raise RuntimeError(
                    "An inplace custom Function is not modifying the forward mode gradients inplace. If the forward is "
                    "modifying an input inplace, then the jvp function must modify the corresponding gradient inplace."
                )
            if tangent is not own:
                raise RuntimeError(
                    "An inplace custom Function is not returning the forward mode gradients as-is. If the forward is "
                    "modifying an input inplace, then the jvp function must modify the gradient inplace and return it "
                    "as-is."
                )
            return
        shown = written
        if shown is None and output._view is not None:
            shown = next((i for i, value in enumerate(args) if _shows(output, value)), None)
        if shown is not None and before[shown] is None:
            self._write(output, tangent)
        elif shown is not None and (self.of_duals or _shows(tangent, before[shown][0])):
            _check_shows(tangent, before[shown][0])
            self.give(output, tangent)
        else:
            self.give(output, tangent, tuple(known[0] for known in before if known is not None))


def _shows(view: Tensor, tensor: Any) -> bool:
    """Whether both are views of one tensor, or one is of the other."""
    return isinstance(tensor, Tensor) and tensor._memory is not None and tensor._memory is view._memory


def _check_shows(tangent: Tensor, whole: Tensor) -> None:
    """Raises: RuntimeError unless the tangent of a view is a view of the tangent of what it shows."""
    if tangent._view is None:
        raise RuntimeError(
            "A custom Function's forward is returning a view (or an input as-is) but the jvp is not returning a view."
        )
    if not _shows(tangent, whole):
        same = "the same base as " if whole._view is not None else ""
        raise RuntimeError(
            f"A custom Function is returning a view but the jvp is not returning a view of {same}the given grad input."
        )


def _recorded(args: Any, tangents: list) -> bool:
    """Whether an op with these tangents must be recorded."""
    return GRAD.enabled and any(t.requires_grad for t in tensors_in((args, tangents)))


def check_shape(value: Tensor, tangent: Tensor) -> None:
    """Raises: RuntimeError if a tangent has another shape than its value."""
    if tangent._array.shape != value._array.shape:
        raise RuntimeError(
            "Trying to set a forward gradient that has a different size than that of the original Tensor, this is not "
            f"supported. Tensor is of size {list(value.shape)} while the given forward gradient is of size "
            f"{list(tangent.shape)}."
        )


def _alike(a: Any, b: Any) -> bool:
    """Whether two arrays of one shape and dtype have the same strides."""
    if a.strides == b.strides or not b.size:
        return True
    return all(n == 1 or x == y for n, x, y in zip(b.shape, a.strides, b.strides, strict=True))


def _laid_out(tangent: Tensor, array: Any) -> Tensor:
    """A copy in the memory order of an array, or row by row if that has gaps."""
    order = dense_order(array)
    if order is None or order == sorted(order):
        return tangent.clone(memory_format=contiguous_format)
    return tangent.permute(order).clone(memory_format=contiguous_format).permute(inverse(order))
