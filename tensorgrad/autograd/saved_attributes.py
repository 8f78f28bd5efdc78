"""What a node saved, under PyTorch's names: `grad_fn._saved_self`, `_saved_result`, `_saved_dim`, `_raw_saved_self`.

Programs use these to draw graphs, to measure memory, and to find out what a backward pass needs. The names are those
of the row: of its parameters, of its outputs, and of the plain values that its formulas take. A table here translates
those that PyTorch names differently.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tensorgrad.autograd.graph import FREED, Node
from tensorgrad.autograd.modes import GRAD
from tensorgrad.autograd.saved_tensors import Packed, raise_freed, unpack
from tensorgrad.rows.op import Op
from tensorgrad.rows.signature import LIST
from tensorgrad.rows.switches import LOCAL
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.tensor import Tensor, wrap

# Rows whose first tensor PyTorch also calls `input`.
_INPUT = {
    "ConvolutionBackward0", "GridSampler2DBackward0", "GridSampler3DBackward0", "NativeBatchNormBackward0",
    "NativeGroupNormBackward0", "NativeLayerNormBackward0",
}  # fmt: skip
_STATISTICS = {"mean": "result1", "rstd": "result2", "axes": ""}
_LOSS = {"knee": ""}
_POOLED = {"indices": "result1", "input_shape": ""}
# PyTorch's names where they differ from a row's; "" for values that it does not expose.
_NAMES: dict[str, dict[str, str]] = {
    "AddmmBackward0": {"input": "mat1", "input_shape": "mat1_sym_sizes", "weight": ""},  # also `linear`
    "AdaptiveAvgPool2DBackward0": {"input_shape": ""},
    "AdaptiveMaxPool2DBackward0": _POOLED,
    "AsStridedBackward0": {"delta": "", "geometry": ""},
    "AvgPool2DBackward0": {"include": "count_include_pad", "divisor": "divisor_override", "input_shape": ""},
    "CdistBackward0": {"first": "x1", "second": "x2"},
    "CholeskyInverseBackward0": {"L": "self"},
    "CholeskySolveBackward0": {"L": "input2", "B": "self"},
    "ConstantPadNdBackward0": {"pads": "pad"},
    "ConvolutionBackward0": {"input_shape": "", "bias_shape": "bias_sym_sizes_opt"},
    "CummaxBackward0": {"input_shape": ""},
    "EmbeddingBagBackward0": {"starts": "offsets", "mean": "", "chosen": ""},
    "ErfinvBackward0": {"out": ""},
    "FftC2RBackward0": {"forward": "", "size": "", "dim": ""},
    "FftR2CBackward0": {"forward": "", "input_shape": ""},
    "FractionalMaxPool2DBackward0": _POOLED,
    "FractionalMaxPool3DBackward0": _POOLED,
    "GatherBackward0": {"input_shape": ""},
    "GluBackward0": {"input": "", "gate": ""},
    "HuberLossBackward0": {"knee": "delta"},
    "Im2ColBackward0": {"input_shape": ""},
    "IndexBackward0": {"pattern": ""},
    "IndexPutBackward0": {"pattern": ""},
    "LinalgDetBackward0": {"input": "A"},
    "LinalgEigBackward0": {"L": "eigenvalues", "V": "eigenvectors"},
    "LinalgEighBackward0": {"L": "eigenvalues", "V": "eigenvectors"},
    "LinalgQrBackward0": {"input_shape": ""},
    "LinalgSlogdetBackward0": {"input": "A"},
    "LinalgSolveTriangularBackward0": {"A": "self"},
    "LinalgSvdBackward0": {"input": "", "full": "full_matrices"},
    "MaskedScatterBackward0": {"source_shape": "source_sym_sizes"},
    "MaxPool2DWithIndicesBackward0": _POOLED,
    "MeanBackward0": {  # also `l1_loss`
        "dim": "", "keepdim": "", "input": "", "input_shape": "self_sym_sizes", "knee": "", "target": "",
        "reduction": "",
    },
    "MulBackward0": {"vec2": "other"},
    "MmBackward0": {"other": "mat2", "other_shape": "mat2_sym_sizes"},
    "MseLossBackward0": _LOSS,
    "NativeBatchNormBackward0": {**_STATISTICS, "bias": ""},
    "NativeGroupNormBackward0": {**_STATISTICS, "bias": "", "groups": "group"},
    "NativeLayerNormBackward0": {**_STATISTICS, "eps": ""},
    "NllLossBackward0": {"weights": "", "label_smoothing": "", "input_shape": ""},
    "NormalBackward1": {"mean_shape": "mean_sym_sizes"},
    "NormalBackward3": {"mean_shape": "mean_sym_sizes", "std_shape": "std_sym_sizes"},
    "PowBackward0": {"out": ""},
    "PowBackward2": {"input": "exponent", "exponent": "self"},
    "ProdBackward0": {"dim": "", "keepdim": ""},
    "SelectBackward0": {"index": ""},
    "SliceBackward0": {"index": ""},
    "SmoothL1LossBackward0": {"knee": "beta"},
    "SparseMmReduceImplBackward0": {"chosen": "", "other_shape": ""},
    "SplitBackward0": {"sizes": ""},
    "SplitWithSizesBackward0": {"sizes": "split_sizes"},
    "SumBackward0": {"dim": "", "keepdim": ""},
    "ToSparseBackward0": {"input": ""},
    "UnbindBackward0": {"input_shape": ""},
    "StdMeanBackward0": {"std": "result0"},
    **{
        f"Upsample{kind}{n}DBackward0": {"scales": "", "align": "align_corners" if smooth else ""}
        for kind, dims, smooth in (("Nearest", "123", False), ("NearestExact", "123", False), ("Linear", "1", True),
                                   ("Bilinear", "2", True), ("Bicubic", "2", True), ("Trilinear", "3", True))
        for n in dims
    },
}  # fmt: skip
_SCALARS = ("PowBackward0", "PowBackward2")  # here scalars are returned as such, not as tensors
# Strings that PyTorch encodes as integers.
_WORDS: dict[str, dict[str, int]] = {
    "reduction": {"none": 0, "mean": 1, "sum": 2}, "interpolation_mode": {"bilinear": 0, "nearest": 1, "bicubic": 2},
    "padding_mode": {"zeros": 0, "border": 1, "reflection": 2},
}  # fmt: skip


def _one_dimension(node: Node) -> dict[str, Any]:
    """`dim` and `index`, or `dim`, `start`, `end` and `step`, of an index that affects only one dimension."""
    shape, index = (node.args[list(node.op.kept).index(k)] for k in ("input_shape", "index"))
    if Ellipsis in index:
        at = index.index(Ellipsis)
        index = (*index[:at], *[slice(None)] * (len(shape) - len(index) + 1), *index[at + 1 :])
    chosen = [(dim, i) for dim, i in enumerate(index) if i != slice(None)]
    if len(chosen) != 1:
        return {}
    dim, i = chosen[0]
    if not isinstance(i, slice):
        return {"dim": dim, "index": i}
    start, end, step = i.indices(shape[dim])
    return {"dim": dim, "start": start, "end": end if i.stop is not None else 2**63 - 1, "step": step}


# Values that are not saved, since they follow from the rest.
_DERIVED: dict[str, Callable[[Node], dict[str, Any]]] = {
    "ConvolutionBackward0": lambda node: {"transposed": node.op.name == "conv_transpose"},
    "ExpandBackward0": lambda node: {"self_sym_sizes": _shape(node.edges[0])},
    "MeanBackward0": lambda node: {"self_sym_numel": math.prod(_shape(node.edges[0]))},
    "PowBackward0": lambda node: {"exponent": 2} if node.op.name == "square" else {},
    "SelectBackward0": _one_dimension,
    "SliceBackward0": _one_dimension,
}


def _shape(edge: Any) -> tuple[int, ...]:
    target, number = edge
    return tuple(target._array.shape if isinstance(target, Tensor) else target.outputs[number][0])


def name_of(node: Node, own: str) -> str:
    """PyTorch's name of a row's parameter, output or plain value; "" if PyTorch does not expose it."""
    op = node.op
    given = _NAMES.get(op.backward_name, {}).get(own)
    if given is not None:
        return given
    if own in op.cache:
        return ""
    if own in op.outputs and len(op.outputs) == 1:
        return "result"
    of, _, what = own.rpartition("_")
    if what in ("shape", "dtype") and any(p.name == of for p in op.params):  # rarely exposed for other inputs
        return {"input_shape": "self_sym_sizes", "input_dtype": "self_scalar_type"}.get(own, "")
    return "self" if own == "input" and op.backward_name not in _INPUT else own


def names(node: Node) -> dict[str, Callable[[], Any]]:
    """Every `_saved_*` and `_raw_saved_*` of a node, with a function that returns its value."""
    op = getattr(node, "op", None)
    if not isinstance(op, Op):
        return {"_raw_saved_tensors": lambda: _given(node)} if hasattr(node, "saved_edges") else {}
    found: dict[str, Callable[[], Any]] = {}
    for k, own in enumerate(op.saved):
        name = name_of(node, own)
        if name:
            found[f"_saved_{name}"] = lambda k=k: _tensor(node, k)  # type: ignore[misc]
            found[f"_raw_saved_{name}"] = lambda k=k: _raw(node, k)  # type: ignore[misc]
    for k, own in enumerate(op.kept):
        name = name_of(node, own)
        if name:
            found[f"_saved_{name}"] = lambda k=k: _plain(node, k)  # type: ignore[misc]
    for name, plain in _DERIVED.get(op.backward_name, lambda node: {})(node).items():
        found[f"_saved_{name}"] = lambda plain=plain: plain  # type: ignore[misc]
    return found


def value(node: Node, name: str) -> Any:
    """Returns the value of `node._saved_*` or `_raw_saved_*`.

    Raises:
        AttributeError: If the node has no such attribute.
        RuntimeError: If the graph was freed, or the saved tensor was written in place.
    """
    found = names(node).get(name)
    if found is None:
        raise AttributeError(f"'{type(node).__name__}' object has no attribute '{name}'")
    return found()


def _edge(node: Node, k: int) -> Any:
    """The graph position of the k-th saved value: for an input its edge, for an output the node."""
    op = node.op
    if not isinstance(op, Op):  # a custom function
        edge = node.saved_edges[k]  # type: ignore[attr-defined]
        return (node, edge) if isinstance(edge, int) else edge
    own = list(op.saved)[k]
    if own in op.outputs:
        number = op.outputs.index(own)
        return (node, number) if number < op.differentiable_outputs else None
    differentiated = [p for p in op.params if p.is_tensor and p.name in op.wrt]
    after = 0  # edges of the preceding parameters; only one of them may be a list
    for p in differentiated:
        many = len(node.edges) - (len(differentiated) - 1) if p.kind is LIST else 1
        if p.name == own:
            return list(node.edges[after : after + many]) if p.kind is LIST else node.edges[after]
        after += many
    return [None] * len(node.saved[k]) if isinstance(node.saved[k], list) else None


def _tensor(node: Node, k: int, item: int | None = None) -> Any:
    """The k-th saved value as a tensor attached to the graph, as a tuple of these, or as one of these."""
    if node.saved is FREED:
        raise_freed()
    before, GRAD.enabled = GRAD.enabled, True
    try:
        found = unpack(node, node.saved[k], _edge(node, k))
    finally:
        GRAD.enabled = before
    if found.__class__ in STORAGES:  # an array from the kernel's cache
        return wrap(found)
    if isinstance(found, list):
        return tuple(found) if item is None else found[item]
    if isinstance(found, bool | int | float | complex) and node.op.backward_name not in _SCALARS:
        return wrap(np.asarray(found))
    return found


def _plain(node: Node, k: int) -> Any:
    found, own = node.args[k], list(node.op.kept)[k]
    if own == "pads":  # flattened, starting from the last dimension
        pads = [n for pair in reversed(found) for n in pair]
        while pads[-2:] == [0, 0]:
            del pads[-2:]
        return tuple(pads)
    if own == "bias_shape" and found is None:
        return (0,)
    if own in _WORDS and isinstance(found, str):
        return _WORDS[own][found]
    return tuple(found) if isinstance(found, list) else found


class SavedTensor:
    """A saved tensor that has not been unpacked: `grad_fn._raw_saved_self`.

    >>> y = torch.tensor([1.0, 2.0], requires_grad=True).exp()
    >>> y.grad_fn._raw_saved_result.register_hooks(lambda t: t.tolist(), torch.tensor)
    >>> y.grad_fn._saved_result
    tensor([2.7183, 7.3891], grad_fn=<ExpBackward0>)
    """

    _node: Node
    _k: int  # index among the saved values, and index in the list if that value is one
    _item: int | None

    def __init__(self, *args, **kwargs):
        raise RuntimeError("Trying to create a SavedTensor object from Python is forbidden.")

    @classmethod
    def of(cls, node: Node, k: int, item: int | None = None) -> SavedTensor:
        """Creates the object for the k-th saved value of a node, or for one element of that list."""
        made = object.__new__(cls)
        made._node, made._k, made._item = node, k, item
        return made

    def _saved(self) -> Any:
        saved = self._node.saved
        if saved is FREED:
            raise RuntimeError(
                "Calling register_hooks on a saved tensor after it has been freed. Saved intermediate values of the "
                "graph are freed when you call .backward() or autograd.grad(). Specify retain_graph=True if you need "
                "to backward through the graph a second time or if you need to access saved variables after calling "
                "backward."
            )
        return saved[self._k] if self._item is None else saved[self._k][self._item]

    @property
    def data(self) -> Any:
        """The tensor, or its packed form; None once the graph was freed."""
        if self._node.saved is FREED:
            return None
        saved = self._saved()
        if isinstance(saved, Packed):
            return saved.packed
        found = self.unpack()
        return found if found is None or found.is_leaf else found.detach()

    def unpack(self) -> Any:
        """Returns the tensor as the backward pass will see it."""
        return _tensor(self._node, self._k, self._item)

    def register_hooks(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        """Replaces the saved tensor by `pack_hook(tensor)` now; backward applies `unpack_hook` to that.

        Raises:
            RuntimeError: If the graph was freed, if there already are hooks, if nothing is saved here, or if the hook
                modifies the tensor.
            TypeError: If a hook is not callable.
        """
        if not callable(pack_hook) or not callable(unpack_hook):
            raise TypeError(
                "register_hooks(): incompatible function arguments: pack_hook and unpack_hook must be callable"
            )
        saved, node, k = self._saved(), self._node, self._k
        if isinstance(saved, Packed):
            raise RuntimeError(
                "Calling register_hooks on a saved tensor whose hooks have already been set. Hint: only one pair of "
                "hooks is allowed at a time."
            )
        if saved is None:
            raise RuntimeError("Calling register_hooks on a saved tensor with value None is forbidden")
        tensor = self.unpack().detach()
        version = tensor._version
        before, GRAD.enabled = GRAD.enabled, False
        try:
            packed = Packed(pack_hook(tensor), unpack_hook)
        finally:
            GRAD.enabled = before
        if tensor._version != version:
            raise RuntimeError(
                "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook "
                "cannot be modified by in-place operations as this can lead to unexpected side-effects. Please open "
                "an issue if you need to perform in-place operations on the input to a pack hook."
            )
        if self._item is not None:
            packed = [*node.saved[k][: self._item], packed, *node.saved[k][self._item + 1 :]]  # type: ignore[assignment]
        node.saved = (*node.saved[:k], packed, *node.saved[k + 1 :])


def _raw(node: Node, k: int) -> Any:
    several = node.saved is not FREED and isinstance(node.saved[k], list)
    return tuple(SavedTensor.of(node, k, i) for i in range(len(node.saved[k]))) if several else SavedTensor.of(node, k)


def _given(node: Node) -> tuple[SavedTensor, ...]:
    """The tensors that a custom function passed to `save_for_backward`."""
    if node.saved is FREED:
        raise_freed()
    return tuple(SavedTensor.of(node, k) for k in range(len(node.saved)))


def _saved_tensors_hooks_is_enabled() -> bool:
    """Whether `saved_tensors_hooks` may be used: not within `disable_saved_tensors_hooks`."""
    return LOCAL.saved_hooks_refused is None
