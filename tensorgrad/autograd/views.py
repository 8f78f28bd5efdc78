"""Views under autograd: a write through a view changes its base, and a write to the base changes its views.

A differentiable view stores its *base* (never itself a view) and the *steps* that lead from the base to it: a linked
list (earlier steps, op, arguments), which views of views share, each adding only its own step. They serve two purposes:

- If the storage was written to since the view was created, its graph position is out of date. When it is needed, the
  steps are replayed on the current base (`view_edge`).
- If the view is written to, the base's history becomes a `CopySlices` node, which routes the gradient of the
  written part through the write and passes the rest on (`rebase`).
"""

from __future__ import annotations

from typing import Any

from tensorgrad.autograd.engine import fit
from tensorgrad.autograd.graph import FREED, Node, hooks_of, next_sequence_nr
from tensorgrad.autograd.modes import GRAD
from tensorgrad.autograd.refused_views import forbid
from tensorgrad.autograd.saved_tensors import raise_freed
from tensorgrad.layouts import strided
from tensorgrad.rows.kernel_tables import OPS
from tensorgrad.rows.switches import LOCAL
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.tensor import RESHAPED, VIEW, Tensor, share


def edge_of(tensor: Tensor):
    """The edge that receives the gradient of `tensor`: None if it needs none."""
    requires = tensor._requires_grad
    if requires is True:
        return tensor._edge or (tensor, 0)
    return view_edge(tensor) if requires else None


class _End(tuple):
    """An edge that leads to a view without a history. It is false: for its gradient nodes save nothing, and compute
    nothing, while what is computed from the view requires grad."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return False


def is_end(edge) -> bool:
    """Whether the edge leads to a view without a history (made under no_grad, say), which keeps no gradient."""
    return isinstance(edge[0], Tensor) and edge[0]._requires_grad is VIEW


def _end(view: Tensor) -> Tensor:
    """Where the gradients of a view without a history end: not in the view, which may become a leaf of its own later
    (`requires_grad_`), with gradients of what is computed from then on."""
    end = share(view._array, view._storage)
    end._view, end._requires_grad = view._view, VIEW
    return end


def _shares(view: Tensor) -> bool:
    """Whether a write to the view changes its base. Sparse tensors share only whole arrays (`detach`, `alias`).

    A tensor that was given other memory (`set_`, `.data = …`) leaves its views behind.
    """
    base = view._view[0]  # type: ignore[index]
    if STORAGES[base._array.__class__].layout is not strided:
        return view._array is base._array
    return base._storage.memory.array is view._storage.memory.array


Steps = tuple[Any, Any, tuple] | None  # (the earlier steps, op, arguments); None is the base itself
LONG = 64  # this many steps are replaced by a single one with strides


def replay(base: Tensor, steps: Steps) -> Tensor:
    """The view obtained by applying `steps` to `base`."""
    in_order = []
    while steps is not None:
        steps, *step = steps
        in_order.append(step)
    while in_order:
        op, args = in_order.pop()
        base = op.compiled.plain(base, *args)
    return base


def view_edge(view: Tensor):
    """The edge of a differentiable view, brought up to date with its base.

    Raises: RuntimeError for a view created without grad whose base has since been written to with grad.
    """
    base, steps, version, recorded = view._view  # type: ignore[misc]
    if view._storage.version == version:
        if view._edge is None and base.requires_grad:
            return _End((_end(view), 0))  # created under no_grad, or before its base required grad: gradients end here
        return view._edge
    if not _shares(view):
        view._view, view._requires_grad = None, view._edge is not None
        return view._edge
    if not base.requires_grad and view._edge is None:
        return None
    if not recorded:
        forbid(view, "its base or another view of its base has been modified inplace")
    before, GRAD.enabled = GRAD.enabled, True
    try:
        steps, origin = steps_now(view), base
        if not base.requires_grad:  # detached since: the view keeps a history, which leads nowhere
            origin = share(base._array, base._storage)
            origin._requires_grad = True
        old, view._edge = view._edge, replay(origin, steps)._edge
        keep_retaining(view, old, view._edge)
    finally:
        GRAD.enabled = before
    view._view = (base, steps, view._storage.version, recorded)
    return view._edge


def steps_now(view: Tensor) -> Steps:
    """The steps from the current base to the view.

    If the shape of the base was changed in place (`t_`), only the view's position in the storage is still valid. That
    position also replaces very long chains of steps (see `grad_mode._force_original_view_tracking`).
    """
    base, steps, _, _ = view._view  # type: ignore[misc]
    reshaped = base.__dict__ and RESHAPED in base.__dict__
    if not reshaped and (view._array.dtype is not base._array.dtype or GRAD.view_replay or not _is_long(steps)):
        return steps
    with_offset = view.stride(), view.storage_offset() - base.storage_offset()
    geometry = (base._array.shape, base.stride())
    return None, OPS["as_strided"], (view._array.shape, *with_offset, geometry)


def _is_long(steps: Steps) -> bool:
    for _ in range(LONG):
        if steps is None:
            return False
        steps = steps[0]
    return True


def view_requires_grad(view: Tensor) -> bool:
    """Whether a differentiable view requires grad: as its base does, except for views of inference tensors."""
    if view._edge is None:
        base = view._view[0]  # type: ignore[index]
        requires = base._requires_grad
        if not (view_requires_grad(base) if requires is VIEW else requires):
            return False
    return view._storage.version is not None


def is_recorded(tensor: Tensor) -> bool:
    """Whether ops on `tensor` are recorded now: `tensor.requires_grad`, while grad mode is on."""
    requires = tensor._requires_grad
    if requires is False or not GRAD.enabled:
        return False
    return view_requires_grad(tensor) if requires is VIEW else requires


def check_writable(tensor: Tensor) -> None:
    """Checks that `tensor` may be written in place with the write being recorded.

    Raises: RuntimeError for a leaf that requires grad or a view of one, for views created without grad, and for one of
    several views returned by one call.
    """
    if tensor._view is not None and tensor._requires_grad is VIEW:
        base, _, _, recorded = tensor._view
        if not recorded:
            forbid(tensor, "is being modified inplace")
        if base.is_leaf and view_requires_grad(tensor):
            raise RuntimeError("a view of a leaf Variable that requires grad is being used in an in-place operation.")
    elif tensor._requires_grad and tensor._edge is None:
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")


def rebase(tensor: Tensor, node: Node) -> None:
    """Records that the op of `node` wrote `tensor` in place: it, its base and the base's other views now depend on it.

    `node`'s first edge leads to the tensor's old history.
    """
    if tensor._view is None or not _shares(tensor):
        tensor._view = None
        keep_retaining(tensor, tensor._edge, (node, 0))
        tensor._edge, tensor._requires_grad = (node, 0), True
        return
    base, steps, _, recorded = tensor._view
    steps = steps_now(tensor)
    copy = CopySlices()
    copy.inner, copy.steps = node, steps
    copy.layout = None
    if _by_strides(steps):
        copy.layout = (base._storage.nbytes() // base.itemsize, base.shape, base.stride(), base.storage_offset())
    copy.op, copy.args, copy.saved, copy.hooks = node.op, (), ("inner",), None
    old = edge_of(base)
    copy.edges = (old, *node.edges[1:])
    copy.base_wanted = old is not None
    copy.sequence_nr = next_sequence_nr()
    array = base._array
    copy.outputs = ((array.shape, array.dtype, array.__class__),)
    keep_retaining(base, base._edge, (copy, 0))
    base._edge, base._requires_grad = (copy, 0), True
    tensor._view = (base, steps, -1, recorded)  # out of date: replayed when next needed


def _by_strides(steps: Steps) -> bool:
    """Whether one of the steps uses the strides of its input."""
    while steps is not None:
        steps, op, _ = steps
        if op.name == "as_strided":
            return True
    return False


def keep_retaining(tensor: Tensor, old, new) -> None:
    """Moves a tensor's `retain_grad` to its new edge, where its new history begins."""
    if old is not None and new is not None and old[0].hooks is not None:
        reference = old[0].hooks.retained.get(old[1])
        if reference is not None and reference() is tensor:
            hooks_of(new[0]).retained[new[1]] = old[0].hooks.retained.pop(old[1])


class CopySlices(Node):
    """A write through a view, as the history of the view's base."""

    __slots__ = ("base_wanted", "inner", "layout", "steps")

    base_wanted: bool
    inner: Any
    layout: tuple | None
    steps: Steps

    def name(self) -> str:
        return "torch::autograd::CopySlices"

    def apply(self, grads):
        """Passes the written part's gradient through the write, and everything else to the old base."""
        inner = self.inner
        if inner is FREED:
            raise_freed()
        whole = self.copied(grads[0])
        part = replay(whole, self.steps)
        first, *others = inner.apply([part.clone()])
        if not self.base_wanted:
            return (None, *others)
        if LOCAL.transforms and first is not None and STORAGES[first._array.__class__].backend == "batched":
            both = first.new_zeros(()) + part.new_zeros(())  # what was written has a batch, the rest may have none
            whole = self.copied(both.new_zeros(whole._array.shape, dtype=whole.dtype).copy_(whole))
            part = replay(whole, self.steps)
        if first is None:
            part.zero_()
        else:
            part.copy_(fit(first, part._array.shape, part._array.dtype, inner))
        return (whole, *others)

    def copied(self, grad: Tensor) -> Tensor:
        """A copy of the gradient; if a step uses strides, laid out like the base in its storage."""
        if self.layout is None:
            return grad.clone(memory_format="contiguous")
        size, *geometry = self.layout
        return grad.new_zeros(size).as_strided(*geometry).copy_(grad)

    def release(self) -> None:
        """Releases what the write saved."""
        self.inner = FREED
