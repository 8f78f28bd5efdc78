"""What a graph computes of weights alone is computed when the file is written, if the file is no larger for it.

Standardized and normalized weights, say, take the place of those that they are made of. Weights that are only moved, as
by a transposition, stay as they are, under the names of the `state_dict`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np

from tensorgrad.onnx.branches import uses
from tensorgrad.onnx.model import MOVES, Node, TensorData

RANDOM = frozenset(("Bernoulli", "Dropout", "Multinomial", "RandomNormalLike", "RandomUniformLike"))


def computed(
    nodes: list[Node],
    initializers: dict[str, TensorData],
    outputs: list[str],
    variable: set[str],
    run: Callable[[list[Node], list[TensorData], str], np.ndarray | None],
) -> list[Node]:
    """The nodes without those whose results are weights now. Those that stay lose their origins: their users have them.

    Args:
        nodes: in an order in which they can run; their inputs change.
        initializers: by name; weights are added, and take the places of others.
        outputs: the names of the graph's results.
        variable: names of values that are not the same in each branch, or each turn of a loop.
        run: computes a result, by its name, with nodes and initializers; None if it cannot.
    """
    constant = set(initializers) - variable
    of_weights, others = list[Node](), list[Node]()
    for node in nodes:
        names = {name for name in uses(node) if name}
        known = bool(names) and names <= constant and not node.domain and node.operator not in RANDOM
        if known and variable.isdisjoint(node.outputs):
            of_weights.append(node)
            constant.update(node.outputs)
        else:
            others.append(node)
    users = Counter(name for node in nodes for name in uses(node)) + Counter(outputs)
    made = {name for node in of_weights for name in node.outputs}
    renamed: dict[str, str] = {}
    gone: set[int] = set()
    for name in dict.fromkeys(name for node in others for name in uses(node) if name in made):
        part = _all_before(name, of_weights)
        inside = Counter(used for node in part for used in uses(node))
        between = {each for node in part for each in node.outputs} - {name}
        if name in outputs or any(users[each] > inside[each] for each in between):
            continue
        if all(node.operator in MOVES for node in part):
            continue
        given = [initializers[used] for used in inside if used in initializers]
        freed = [tensor for tensor in given if users[tensor.name] == inside[tensor.name]]
        array = run(part, given, name)
        if array is None or array.nbytes > sum(tensor.array.nbytes for tensor in freed):
            continue
        new = next((t.name for t in freed if t.array.shape == array.shape and t.array.dtype == array.dtype), name)
        initializers[new] = TensorData(new, array)
        renamed[name] = new
        gone |= {id(node) for node in part}
    for node in of_weights:
        node.metadata = {}
    kept = [node for node in nodes if id(node) not in gone]
    for node in kept:
        node.inputs = [renamed.get(name, name) for name in node.inputs]
    return kept


def _all_before(name: str, known: list[Node]) -> list[Node]:
    """The nodes that make a value, in an order in which they can run."""
    found, needed = [], {name}
    for node in reversed(known):
        if not needed.isdisjoint(node.outputs):
            found.append(node)
            needed.update(uses(node))
    return found[::-1]
