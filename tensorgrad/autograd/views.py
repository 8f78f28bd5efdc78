"""Views under autograd: a write through a view changes its base, and a write to the base changes its views.

A differentiable view remembers its *base* (never itself a view) and the *steps*, (op, arguments) pairs, that lead from
the base to it. Two things follow from them:

- Somebody wrote to the storage since the view was made: its place in the graph is out of date. When asked for, the
  steps are replayed on the base as it is now (`view_edge`).
- Somebody writes to the view: the base's history becomes a `CopySlices` node, which routes the gradient of the
  written part through the write and lets the rest pass (`rebase`).
"""

from __future__ import annotations

from tensorgrad.autograd.engine import fit
from tensorgrad.autograd.graph import FREED, Node, next_sequence_nr, raise_freed
from tensorgrad.autograd.modes import GRAD
from tensorgrad.tensor import VIEW, Tensor

AMBIGUOUS = (
    "Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your code by moving both "
    "the view and the inplace either both inside the no_grad block (if you don't want the inplace to be tracked) or "
    "both outside (if you want the inplace to be tracked)."
)


def edge_of(tensor: Tensor):
    """Where a gradient of `tensor` goes: None if it needs none."""
    requires = tensor._requires_grad
    if requires is True:
        return tensor._edge or (tensor, 0)
    return view_edge(tensor) if requires else None


def replay(base: Tensor, steps: tuple) -> Tensor:
    """The view that `steps` make of `base`."""
    for op, args in steps:
        base = op.plain(base, *args)
    return base


def view_edge(view: Tensor):
    """The edge of a differentiable view, brought up to date with its base.

    Raises: RuntimeError for a view made without grad whose base was since written to with grad.
    """
    base, steps, version, recorded = view._view  # type: ignore[misc]
    if view._storage.version == version:
        if view._edge is None and not recorded and base.requires_grad:
            return (view, 0)  # made under no_grad: a leaf of its own
        return view._edge
    if not base.requires_grad:
        return None
    if not recorded:
        if base._edge is None:
            return (view, 0)
        raise RuntimeError(
            "A view was created in no_grad mode and its base or another view of its base has been modified inplace "
            f"with grad mode enabled. {AMBIGUOUS}"
        )
    before, GRAD.enabled = GRAD.enabled, True
    try:
        view._edge = replay(base, steps)._edge
    finally:
        GRAD.enabled = before
    view._view = (base, steps, view._storage.version, recorded)
    return view._edge


def view_requires_grad(view: Tensor) -> bool:
    """Whether a differentiable view requires grad: as its base does."""
    return view._edge is not None or view._view[0].requires_grad  # type: ignore[index]


def check_writable(tensor: Tensor) -> None:
    """Whether `tensor` may be written in place while the graph is recorded.

    Raises: RuntimeError for a leaf that requires grad or a view of one, and for views made without grad.
    """
    if tensor._requires_grad is VIEW:
        base, _, _, recorded = tensor._view  # type: ignore[misc]
        if base._requires_grad and base.is_leaf:
            raise RuntimeError("a view of a leaf Variable that requires grad is being used in an in-place operation.")
        if not recorded:
            raise RuntimeError(f"A view was created in no_grad mode and is being modified inplace with grad mode enabled. {AMBIGUOUS}")
    elif tensor._requires_grad and tensor._edge is None:
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")


def rebase(tensor: Tensor, node: Node) -> None:
    """`tensor` was written in place by the op that `node` records: it, its base and its sister views now depend on it.

    `node`'s first edge leads to the tensor's old history.
    """
    if tensor._view is None:
        tensor._edge, tensor._requires_grad = (node, 0), True
        return
    base, steps, _, recorded = tensor._view
    copy = CopySlices()
    copy.inner, copy.steps = node, steps
    copy.op, copy.args, copy.saved, copy.hooks = node.op, (), ("inner",), None
    old = edge_of(base)
    copy.edges = (old, *node.edges[1:])
    copy.base_wanted = old is not None
    copy.sequence_nr = next_sequence_nr()
    array = base._array
    copy.outputs = ((array.shape, array.dtype, array.__class__),)
    base._edge, base._requires_grad = (copy, 0), True
    tensor._view = (base, steps, -1, recorded)  # out of date: replayed when next asked for


class CopySlices(Node):
    """A write through a view, as the history of the view's base."""

    __slots__ = ("base_wanted", "inner", "steps")

    def name(self) -> str:
        return "CopySlices"

    def apply(self, grads):
        """The written part's gradient goes through the write; everything else passes to the old base."""
        inner = self.inner
        if inner is FREED:
            raise_freed()
        whole = grads[0].clone()
        part = replay(whole, self.steps)
        first, *others = inner.apply([part.clone()])
        if not self.base_wanted:
            return (None, *others)
        if first is None:
            part.zero_()
        else:
            part.copy_(fit(first, part._array.shape, part._array.dtype, inner))
        return (whole, *others)

    def release(self) -> None:
        """Lets go of what the write saved."""
        self.inner = FREED
