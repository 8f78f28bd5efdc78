"""`torch.utils.flop_counter`: counts the multiplications and additions done by the ops that run.

A formula for each row of the op table computes the cost of a call from the shapes of its inputs and results. As in
PyTorch, matrix products, convolutions and attention are counted; here recurrent layers and products with vectors are
counted too. A multiplication and the addition that follows it count as two. Element-wise ops, normalization and biases
are not counted.
"""

from __future__ import annotations

import math
import warnings
import weakref
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from tensorgrad.autograd import engine
from tensorgrad.autograd.graph import Node
from tensorgrad.rows import switches
from tensorgrad.system.per_thread import PerThread
from tensorgrad.tensor import Tensor
from tensorgrad.utils.module_tracker import ModuleTracker

__all__ = ["FlopCounterMode", "register_flop_formula"]

# --- the cost of each row ------------------------------------------------------------------------------------------


def _product(a: tuple, b: tuple, *_: Any, out_shape: tuple) -> int:
    return 2 * math.prod(out_shape) * a[-1]


def _product_tn(a: tuple, b: tuple, *_: Any, out_shape: tuple) -> int:
    return 2 * math.prod(out_shape) * a[-2]


def _added_product(c: tuple, a: tuple, b: tuple, *_: Any, out_shape: tuple) -> int:
    return 2 * math.prod(out_shape) * a[-1]


def _summed_products(c: tuple, a: tuple, b: tuple, *_: Any, out_shape: tuple) -> int:
    return 2 * math.prod(a) * b[-1]


def _convolution(x: tuple, weight: tuple, *_: Any, out_shape: tuple) -> int:
    return 2 * math.prod(out_shape) * math.prod(weight[1:])


def _spread_convolution(x: tuple, weight: tuple, *_: Any, out_shape: tuple) -> int:
    return 2 * math.prod(x) * math.prod(weight[1:])


def _weights_of_convolution(grad: tuple, x: tuple, shape: tuple, *_: Any, out_shape: tuple) -> int:
    return 2 * math.prod(grad) * math.prod(shape[1:])


def _attention(query: tuple, key: tuple, value: tuple, *_: Any, out_shape: tuple) -> int:
    return 2 * math.prod(out_shape[:-1]) * key[-2] * (query[-1] + value[-1])


def _lstm(x: tuple, h: tuple, c: tuple, w_ih: tuple, w_hh: tuple, b_ih: Any, b_hh: Any, w_hr: Any, *_: Any,
          out_shape: tuple) -> int:  # fmt: skip
    return 2 * x[0] * (math.prod(w_ih) + math.prod(w_hh) + (math.prod(w_hr) if w_hr else 0))


def _rnn(x: tuple, h: tuple, w_ih: tuple, w_hh: tuple, *_: Any, out_shape: tuple) -> int:
    return 2 * x[0] * (math.prod(w_ih) + math.prod(w_hh))


flop_registry: dict[str, Callable] = {  # row -> formula for the cost of a call
    **dict.fromkeys(("matmul", "matmul_nt", "linear", "mm", "bmm", "mv", "dot", "vdot"), _product),
    "matmul_tn": _product_tn,
    **dict.fromkeys(("addmm", "addmv", "baddbmm"), _added_product),
    "addbmm": _summed_products,
    "conv": _convolution,
    "conv_transpose": _spread_convolution,
    "conv_grad_input": _spread_convolution,
    "conv_grad_weight": _weights_of_convolution,
    "attention": _attention,
    "lstm_layer": _lstm,
    **dict.fromkeys(("gru_layer", "rnn_layer"), _rnn),
}


def row_of(target: Any) -> str:
    """Returns the row name of an op, given as that name or as a function. Raises: ValueError for anything else."""
    name = target if isinstance(target, str) else getattr(getattr(target, "op", None), "name", None)
    if name is None:
        raise ValueError(
            f"register_flop_formula(targets): expected each target to be an op, such as torch.mm, or the name of its "
            f"row, got {target} which is of type {type(target)}"
        )
    return name


def _shape(value: Any) -> Any:
    if isinstance(value, Tensor):
        return tuple(value._array.shape)
    if isinstance(value, list | tuple) and any(isinstance(v, Tensor) for v in value):
        return [_shape(v) for v in value]
    return value


def _of_shapes(formula: Callable) -> Callable:
    return lambda *args, out_val: formula(*map(_shape, args), out_shape=_shape(out_val))


def register_flop_formula(targets: Any, get_raw: bool = False) -> Callable:
    """A decorator that registers a function as the cost formula of an op.

    The function receives the shapes of the op's arguments, in the order of the op's parameters, and `out_shape`.

    Args:
        targets: an op (`torch.mul`, or the name of its row), or a list of them.
        get_raw: whether to pass the function the arguments themselves, and the result as `out_val`.

    Raises:
        ValueError: If a target is not an op.
        RuntimeError: If a target already has a formula.

    >>> import math
    >>> from tensorgrad.utils import flop_counter
    >>> @flop_counter.register_flop_formula(torch.mul)
    ... def mul_flop(a_shape, b_shape, out_shape=None):
    ...     return math.prod(out_shape)
    >>> with flop_counter.FlopCounterMode(display=False) as counter:
    ...     y = torch.ones(2, 3) * torch.ones(3)
    >>> counter.get_total_flops()
    6
    >>> del flop_counter.flop_registry["mul"]
    """

    def register(formula: Callable) -> Callable:
        for target in targets if isinstance(targets, list | tuple) else [targets]:
            name = row_of(target)
            if name in flop_registry:
                raise RuntimeError(f"duplicate registrations for {name}")
            if get_raw:
                formula._get_raw = True  # type: ignore[attr-defined]
            flop_registry[name] = formula
        return formula

    return register


def flops(registry: dict[str, Callable], op: Any, args: tuple, result: Any) -> int | None:
    """Returns the cost of a call of an op, or None if there is no formula for it."""
    formula = registry.get(op.name)
    if formula is None:
        return None
    if getattr(formula, "_get_raw", False):
        return formula(*args, out_val=result)
    return _of_shapes(formula)(*args, out_val=result)


# --- backward kernels: they work on arrays, so no ops run that could be counted --------------------------------------


def _linear_backward(node: Node) -> int:
    """One product for each factor that needs a gradient."""
    inner = (_input_shape(node, "input") or _input_shape(node, "weight") or (0,))[-1]
    return 2 * math.prod(node.outputs[0][0]) * inner * sum(e is not None for e in node.edges[:2])


def _attention_backward(node: Node) -> int:
    query, key, value = (_input_shape(node, name) for name in ("query", "key", "value"))
    *needs, needs_value, needs_mask = (e is not None for e in node.edges)
    one = 2 * math.prod(node.outputs[0][0][:-1]) * key[-2]  # products of one column
    scores = any(needs) or needs_mask
    return one * (value[-1] * (needs_value + scores) + 2 * query[-1] * scores)


def _recurrent_backward(node: Node) -> int:
    """Every product counts twice: once for the states and inputs, once for the weights."""
    shapes = [_input_shape(node, p.name) for p in node.op.params if p.is_tensor]
    return 2 * flop_registry[node.op.name](*shapes, out_shape=node.outputs[0][0])


def _input_shape(node: Node, name: str) -> Any:
    """Returns the shape of an input, from the saved tensor or (if a hook replaced it) from the edge; None if neither
    has it.
    """
    saved = node.saved[list(node.op.saved).index(name)]
    if saved.__class__ is tuple:
        return saved[0].shape
    edge = node.edges[node.op.wrt.index(name)]
    if edge is None:
        return None
    return edge[0]._array.shape if isinstance(edge[0], Tensor) else edge[0].outputs[edge[1]][0]


_BACKWARD: dict[str, Callable[[Node], int]] = {
    "linear": _linear_backward, "attention": _attention_backward,
    **dict.fromkeys(("lstm_layer", "gru_layer", "rnn_layer"), _recurrent_backward),
}  # fmt: skip


def backward_flops(node: Any) -> int | None:
    """Returns the cost of a node's backward kernel, or None if it is not counted."""
    formula = _BACKWARD.get(getattr(getattr(node, "op", None), "name", ""))  # custom functions have no row
    return None if formula is None else formula(node)


# --- the counter ---------------------------------------------------------------------------------------------------


class _Counted:
    """One op that ran: its start time, row and cost, and the modules it ran in."""

    __slots__ = ("amount", "parents", "row", "start")

    def __init__(self, start: float, row: str, amount: int, parents: set[str]):
        self.start, self.row, self.amount, self.parents = start, row, amount, parents


class _Thread(PerThread):
    def __init__(self) -> None:
        self.ran: list[_Counted] = []


class FlopCounterMode:
    """Counts the operations inside a `with` block, in total and per module, including the backward pass.

    Args:
        mods: accepted with a warning, and ignored: modules are found when they are called.
        depth: how many levels of modules the table shows.
        display: whether to print the table at the end.
        custom_mapping: a dict of op -> formula, in addition to the registered ones; see `register_flop_formula`.

    A module is named by the class of the outermost module and the path from there, and an op by its row. The counts
    agree with PyTorch's for matrix products, convolutions without groups and attention composed of matrix products. For
    the weight gradient of a grouped convolution, PyTorch also counts products between different groups, which are not
    computed.

    >>> from tensorgrad.utils.flop_counter import FlopCounterMode
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> with FlopCounterMode(display=False) as counter:
    ...     loss = model(torch.ones(3, 4)).sum()
    >>> counter.get_total_flops(), counter.get_flop_counts()["Sequential.2"]
    (288, {'linear': 96})
    >>> print(counter.get_table())
    Module           FLOP    % Total
    -------------  ------  ---------
    Sequential        288    100.00%
     - linear         288    100.00%
     Sequential.0     192     66.67%
      - linear        192     66.67%
     Sequential.2      96     33.33%
      - linear         96     33.33%
    """

    def __init__(
        self,
        mods: Any = None,
        depth: int = 2,
        display: bool = True,
        custom_mapping: dict[Any, Callable] | None = None,
    ):
        if mods is not None:
            warnings.warn("mods argument is not needed anymore, you can stop passing it", stacklevel=2)
        self.depth, self.display = depth, display
        self.flop_registry = {**flop_registry, **{row_of(k): v for k, v in (custom_mapping or {}).items()}}
        self.mod_tracker = ModuleTracker()
        self._thread = _Thread()
        self._finished: list[list[_Counted]] = []
        self._made_in: weakref.WeakKeyDictionary[Node, set[str]] = weakref.WeakKeyDictionary()

    def __enter__(self) -> FlopCounterMode:
        self._thread, self._finished = _Thread(), []
        self.mod_tracker.__enter__()
        switches.observe(self._op, "flop counter")
        engine.OBSERVERS.append(self._node)
        return self

    def __exit__(self, *exception: Any) -> None:
        engine.OBSERVERS.remove(self._node)
        switches.unobserve(self._op, "flop counter")
        self.mod_tracker.__exit__()
        if self.display:
            print(self.get_table(self.depth))

    def _ran(self) -> list[_Counted]:
        ran = self._thread.ran
        if not any(ran is known for known in self._finished):
            self._finished.append(ran)
        return ran

    def _op(self, op: Any, args: tuple, result: Any, start: float, seconds: float) -> None:
        parents = self.mod_tracker.parents
        for tensor in result if isinstance(result, tuple) else (result,):
            if isinstance(tensor, Tensor) and tensor._edge is not None and isinstance(tensor._edge[0], Node):
                self._made_in[tensor._edge[0]] = parents
                break
        amount = flops(self.flop_registry, op, args, result)
        if amount is not None:
            ran = self._ran()
            while ran and ran[-1].start >= start:  # its twin ran inside it: this entry counts for both
                ran.pop()
            ran.append(_Counted(start, op.name, amount, parents))

    def _node(self, node: Node, start: float, seconds: float) -> None:
        """Attributes the ops run for a node of the backward pass to the modules in which the node was created."""
        ran = self._ran()
        inside = [counted for counted in reversed(ran) if counted.start >= start]
        amount = None if inside else backward_flops(node)
        if amount is not None and node.op.name in self.flop_registry:
            inside = [_Counted(start, f"{node.op.name}_backward", amount, set())]
            ran.extend(inside)
        for counted in inside:
            counted.parents = self._made_in.get(node) or {"Global"}

    @property
    def flop_counts(self) -> dict[str, dict[str, int]]:
        """The counts so far, as module -> row -> count."""
        found: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for counted in (c for ran in self._finished for c in ran):
            for module in counted.parents:
                found[module][counted.row] += counted.amount
        return found

    def get_total_flops(self) -> int:
        """Returns the total count."""
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self) -> dict[str, dict[str, int]]:
        """Returns the count of each op for each module, and under "Global" for all modules together."""
        return {module: dict(rows) for module, rows in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """Returns a table of the counts of each module and its ops, down to `depth` levels."""
        depth = self.depth if depth is None else depth
        depth = 999_999 if depth is None else depth
        counts, total = self.flop_counts, self.get_total_flops()
        place = max(0, min(len(_SUFFIXES) - 1, (len(str(total)) - 2) // 3))
        rows: list[tuple[str, str, str]] = []

        def add(module: str, indent: int) -> None:
            listed = [(module, sum(counts[module].values())), *((f" - {row}", n) for row, n in counts[module].items())]
            for name, n in listed:
                amount = f"{n / 1000**place:.3f}{_SUFFIXES[place]}" if place else str(n)
                rows.append((" " * indent + name, amount, f"{n / total:.2%}" if total else "0%"))

        shown = [m for m in sorted(counts) if m != "Global" and m.count(".") < depth]
        covered = any(sum(counts[m].values()) >= total for m in shown)
        if "Global" in counts and not covered:
            add("Global", 0)
        for module in shown:
            add(module, module.count(".") + (not covered))
        return _aligned(("Module", "FLOP", "% Total"), rows or [("Global", "0", "0%")])


_SUFFIXES = ("", "K", "M", "B", "T")


def _aligned(header: tuple[str, str, str], rows: list[tuple[str, str, str]]) -> str:
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(3)]
    widths = [widths[0], max(widths[1], len(header[1]) + 2), max(widths[2], len(header[2]) + 2)]
    lines = [header, tuple("-" * w for w in widths), *rows]
    return "\n".join(f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}" for a, b, c in lines)
