"""A tensor's position in the graph as users see it: `requires_grad`, `grad_fn`, `is_leaf`, `output_nr`, `detach_`."""

from __future__ import annotations

from typing import Any

from tensorgrad.autograd.graph import leaf_hooks_of, shown
from tensorgrad.autograd.views import view_edge, view_requires_grad
from tensorgrad.errors import check_flag
from tensorgrad.rows.switches import LOCAL
from tensorgrad.storage.stubs import INFERENCE
from tensorgrad.tensor import VIEW, Tensor, apart, differentiable


def _is_leaf(tensor: Tensor) -> bool:
    """`is_leaf`, without bringing the history of a view up to date, which may be impossible."""
    return tensor._edge is None or isinstance(tensor._edge[0], Tensor)


class _Fields:
    @property
    def requires_grad(self: Any) -> bool:
        """Whether gradients flow to this tensor. May be set on leaves of floating-point or complex dtype.

        >>> x, w = torch.ones(2), torch.ones(2, requires_grad=True)
        >>> x.requires_grad, (w * x).requires_grad
        (False, True)
        """
        requires = self._requires_grad
        if requires is VIEW:
            return view_requires_grad(self)
        return requires

    @requires_grad.setter
    def requires_grad(self: Any, value: bool) -> None:
        if value and not differentiable(self._array.dtype):
            raise RuntimeError("only Tensors of floating point and complex dtype can require gradients")
        if value and self.requires_grad and not _is_leaf(self):
            raise RuntimeError("you can only change requires_grad flags of leaf variables.")
        self.requires_grad_(value)

    @requires_grad.deleter
    def requires_grad(self: Any) -> None:
        raise RuntimeError("requires_grad of a tensor cannot be deleted; use requires_grad_(False) or detach()")

    def requires_grad_(self: Any, requires_grad: bool = True) -> Tensor:
        """Sets in place whether gradients flow to this tensor; returns it.

        Raises: RuntimeError for an integer tensor, or when disabling it for a computed tensor.

        >>> torch.ones(2).requires_grad_()
        tensor([1., 1.], requires_grad=True)
        """
        if requires_grad is not True and requires_grad is not False:
            check_flag(requires_grad, "requires_grad")
        value = bool(requires_grad)
        if value and not differentiable(self._array.dtype):
            raise RuntimeError("only Tensors of floating point dtype can require gradients")
        if self.requires_grad == value and not (value and self._requires_grad is VIEW and _is_leaf(self)):
            return self  # unless it is a view made under no_grad, which now keeps a gradient of its own
        if not value and not _is_leaf(self):
            raise RuntimeError(
                "you can only change requires_grad flags of leaf variables. If you want to use a computed variable in "
                "a subgraph that doesn't require differentiation use var_no_grad = var.detach()."
            )
        if value and self._storage.of_inference() and not INFERENCE.on:
            raise RuntimeError("Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.")
        self._requires_grad = value or (VIEW if self._is_view() else False)  # a view requires grad as its base does
        return self

    def detach_(self: Any) -> Tensor:
        """Detaches this tensor from the graph in place: it becomes a leaf that does not require grad.

        Its hooks stay.

        Raises:
            RuntimeError: For a view, since its base would still require grad.

        >>> y = torch.ones(2, requires_grad=True) * 2
        >>> y.detach_().is_leaf
        True
        """
        if INFERENCE.on:  # in which nothing is recorded, nor forgotten
            return self
        if self._view is not None:
            raise RuntimeError("Can't detach views in-place. Use detach() instead.")
        edge = self._edge
        if edge is not None and not isinstance(edge[0], Tensor) and edge[0].hooks is not None:
            hooks = edge[0].hooks.on_output.get(edge[1])
            if hooks:
                leaf_hooks_of(self).on_grad = hooks
        self._edge, self._requires_grad = None, False
        if LOCAL.transforms:  # a tangent belongs to an array
            self._array = apart(self)
        return self

    @property
    def is_leaf(self: Any) -> bool:
        """Whether the tensor was created by the user rather than computed from tensors that require grad.

        >>> x = torch.ones(2, requires_grad=True)
        >>> x.is_leaf, (2 * x).is_leaf, torch.ones(2).is_leaf
        (True, False, True)
        """
        return self.grad_fn is None

    @property
    def grad_fn(self: Any):
        """The node that computed this tensor; None for a leaf.

        >>> x = torch.ones(2, requires_grad=True)
        >>> x.exp().grad_fn.name()
        'ExpBackward0'
        """
        if self._requires_grad is VIEW:
            edge = view_edge(self) if self._storage.version is not None else None
            return shown(edge[0]) if edge is not None and not isinstance(edge[0], Tensor) else None
        edge = self._edge  # leads to a leaf if this tensor is that leaf as another class
        return None if edge is None or isinstance(edge[0], Tensor) else shown(edge[0])

    @property
    def output_nr(self: Any) -> int:
        """The index of this tensor among the outputs of `grad_fn`.

        >>> first, second = torch.ones(2, requires_grad=True).unbind()
        >>> first.output_nr, second.output_nr
        (0, 1)
        """
        return 0 if self.grad_fn is None else self._edge[1]


for _name in ("requires_grad", "requires_grad_", "detach_", "is_leaf", "grad_fn", "output_nr"):
    setattr(Tensor, _name, vars(_Fields)[_name])
