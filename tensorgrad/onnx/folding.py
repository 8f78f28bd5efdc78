"""Batch norms become part of the product before them: with constant statistics they scale and shift its channels.

Then a bias of zeros is left out, as new models and those without a shift have: adding it takes a pass over the result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np

from tensorgrad.onnx.branches import uses
from tensorgrad.onnx.model import Node, TensorData

PRODUCTS = ("Conv", "ConvTranspose", "Gemm")


def folded(
    nodes: list[Node], initializers: dict[str, TensorData], outputs: list[str], unique: Callable[[str], str]
) -> list[Node]:
    """The nodes without the batch norms that follow a product whose result nothing else needs, and biases of zeros.

    Args:
        nodes: in an order in which they can run; products change.
        initializers: by name; weights change, and biases are added.
        outputs: the names of the graph's results.
        unique: makes a new name of one.
    """
    count = Counter(name for node in nodes for name in uses(node)) + Counter(outputs)
    makers = {name: node for node in nodes for name in node.outputs}
    kept = []
    for node in nodes:
        product = makers.get(node.inputs[0]) if _is_constant_norm(node) else None
        if product is None or not _fits(product, node, initializers, count):
            kept.append(node)
            continue
        _fold(product, node, initializers, unique)
        makers[product.outputs[0]] = product
    for node in kept:
        if node.operator in PRODUCTS and not node.domain and len(node.inputs) == 3:
            bias = initializers.get(node.inputs[2])
            if bias is not None and not bias.array.any():
                del node.inputs[2]
    return kept


def _is_constant_norm(node: Node) -> bool:
    return node.operator == "BatchNormalization" and not node.domain and not node.attributes.get("training_mode")


def _fits(product: Node, norm: Node, initializers: dict[str, TensorData], count: Counter[str]) -> bool:
    constants = [*product.inputs[1:], *norm.inputs[1:]]
    if product.operator not in PRODUCTS or product.domain or not all(name in initializers for name in constants):
        return False
    if count[product.outputs[0]] > 1 or any(count[name] > 1 for name in product.inputs[1:]):
        return False
    if product.operator == "Gemm" and product.attributes != {"transB": 1}:
        return False
    return all(initializers[name].array.dtype.itemsize >= 4 for name in constants)  # others may be too narrow for it


def _fold(product: Node, norm: Node, initializers: dict[str, TensorData], unique: Callable[[str], str]) -> None:
    scale, shift, mean, variance = (initializers[name].array.astype(np.float64) for name in norm.inputs[1:])
    factor = scale / np.sqrt(variance + norm.attributes.get("epsilon", 1e-5))
    name, *bias = product.inputs[1:]
    weight = initializers[name].array
    factors = factor
    if product.operator == "ConvTranspose":  # (inputs, outputs of a group, ...): a factor for each input and output
        groups = product.attributes.get("group", 1)
        factors = factor.reshape(groups, -1).repeat(len(weight) // groups, axis=0)
    before = initializers[bias[0]].array if bias else 0.0
    new = bias[0] if bias else unique(f"{name.removesuffix('weight')}bias")
    factors = factors.reshape(factors.shape + (1,) * (weight.ndim - factors.ndim))
    initializers[name] = TensorData(name, (weight * factors).astype(weight.dtype))
    initializers[new] = TensorData(new, ((before - mean) * factor + shift).astype(weight.dtype))
    product.inputs = [product.inputs[0], name, new]
    product.outputs, product.metadata = norm.outputs, norm.metadata
