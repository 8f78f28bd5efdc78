"""What nodes save for the backward pass: how a value is stored, checked and restored.

A saved tensor is the triple `(array, storage, version)`, not the tensor itself: the tensor may later be written in
place and so come to depend on this very node, which would create a cycle. Its graph position is the node's own
edge for that input. A version that differs when the value is restored means that it was written in place.
"""

from __future__ import annotations

from tensorgrad.autograd.graph import Node, legacy_type_name
from tensorgrad.autograd.modes import GRAD
from tensorgrad.tensor import PLAIN, Tensor, share


def save(value):
    """The form in which a node saves an input or output for its formulas; Python scalars are saved unchanged.

    Raises: RuntimeError for a tensor made in inference mode, whose later writes would go undetected.
    """
    if value.__class__ in PLAIN or isinstance(value, Tensor):
        storage = value._storage if value._memory is None else value._memory  # not `or`: that would test its size
        version = storage.version
        if version is None:
            raise RuntimeError(
                "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode "
                "in computation tracked by autograd. To work around this, you can make a clone to get a normal tensor "
                "and use it in autograd, or use `torch.no_grad()` instead of `torch.inference_mode()`."
            )
        return (value._array, storage, version)
    return value if value.__class__ is not list else [save(v) for v in value]


def unpack(node: Node, saved, edge):
    """The tensor (or scalar) that `save` stored, attached to the graph if the graph is being recorded.

    Raises: RuntimeError if it has been written in place since.
    """
    if saved.__class__ is not tuple:
        if saved.__class__ is list:
            return [unpack(node, s, e) for s, e in zip(saved, edge, strict=True)]
        return saved.unpack(edge) if isinstance(saved, Packed | SavedSubclass) else saved
    array, storage, version = saved
    if storage.version != version:
        raise_modified(node, array, storage, version, edge)
    if edge is not None and GRAD.enabled:
        target = edge[0]
        if isinstance(target, Tensor) and target._array is array:
            return target
    else:
        edge = None
    tensor = object.__new__(Tensor)
    tensor._array, tensor._memory = array, storage
    tensor._grad = tensor._view = tensor._hooks = None
    tensor._edge, tensor._requires_grad = edge, edge is not None
    return tensor


class SavedSubclass:
    """A tensor of a subclass that a custom function saved: `backward` finds it again, with its class and attributes."""

    __slots__ = ("node_name", "tensor", "version")

    def __init__(self, tensor: Tensor, node: Node):
        self.tensor, self.version, self.node_name = tensor, tensor._version, node.name()

    def unpack(self, edge) -> Tensor:
        """Returns the tensor. Raises: RuntimeError if it has been written in place since."""
        if self.tensor._version != self.version:
            raise RuntimeError(
                f"one of the variables needed for gradient computation has been modified by an inplace operation: a "
                f"{type(self.tensor).__name__} saved by {self.node_name} is at version {self.tensor._version}; "
                f"expected version {self.version} instead."
            )
        return self.tensor


class Packed:
    """A saved value that was processed by `saved_tensors_hooks`."""

    __slots__ = ("packed", "unpack_hook")

    def __init__(self, packed, unpack_hook):
        self.packed, self.unpack_hook = packed, unpack_hook

    def unpack(self, edge) -> Tensor:
        """Returns the tensor restored by the hook, at the graph position `edge`.

        Raises: TypeError if the hook does not return a tensor.
        """
        before, GRAD.enabled = GRAD.enabled, False
        try:
            tensor = self.unpack_hook(self.packed)
        finally:
            GRAD.enabled = before
        if not isinstance(tensor, Tensor):
            raise TypeError(
                "Output of saved tensor unpack_hook expected to be a Tensor but got result of type "
                f"{type(tensor).__name__}"
            )
        tensor = share(tensor._array, tensor._storage)
        if edge is not None and before:
            tensor._edge, tensor._requires_grad = edge, True
        return tensor


def raise_modified(node: Node, array, storage, version, edge):
    """Raises the error for a saved tensor that was written in place, naming it and both versions."""
    kind = legacy_type_name(array)
    made_by = ""
    if edge is None and hasattr(node, "op"):  # if the values stay arrays, outputs are passed without their edge
        for name, saved in zip(node.op.saved, node.saved, strict=False):
            if name in node.op.outputs and saved.__class__ is tuple and saved[0] is array:
                edge = (node, node.op.outputs.index(name))
    if edge is not None and isinstance(edge[0], Node):
        made_by = f", which is output {edge[1]} of {edge[0].name().removesuffix('0').removesuffix('Backward')},"
    raise RuntimeError(
        f"one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[{kind} {list(array.shape)}]{made_by} is at version {storage.version}; expected version {version} instead"
        ". Hint: enable anomaly detection to find the operation that failed to compute its gradient, with "
        f"torch.autograd.set_detect_anomaly(True, check_nan=False). (The value is needed by {node.name()}.)"
    )


def raise_freed() -> None:
    """Raises the error for running backward twice through a graph that was freed."""
    raise RuntimeError(
        "Trying to backward through the graph a second time (or directly access saved tensors after they have already "
        "been freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). "
        "Specify retain_graph=True if you need to backward through the graph a second time or if you need to access "
        "saved tensors after calling backward."
    )
