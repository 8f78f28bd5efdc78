"""Code of graphs whose inputs and results are nested in lists, tuples and dictionaries.

The placeholders of such a graph are the values in the arguments, and its output is the list of the values in the
result. The function that is made of it takes and returns the containers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tensorgrad.fx.codegen import CodeGen
from tensorgrad.utils._pytree import TreeSpec, arg_tree_leaves, tree_unflatten

__all__ = ["_PyTreeCodeGen", "_PyTreeInfo"]


class _PyTreeInfo(NamedTuple):
    """The names of the arguments, and how they and the result are nested."""

    orig_args: list[str]
    in_spec: TreeSpec
    out_spec: TreeSpec | None


class _PyTreeCodeGen(CodeGen):
    """Writes functions that take and return containers.

    >>> from tensorgrad.fx.graph import _PyTreeCodeGen, _PyTreeInfo
    >>> from tensorgrad.utils._pytree import tree_flatten
    >>> module = torch.fx.symbolic_trace(lambda a, b: [a + b])
    >>> _, spec = tree_flatten(({"a": 1, "b": 2},))
    >>> module.graph.set_codegen(_PyTreeCodeGen(_PyTreeInfo(["pair"], spec, tree_flatten([1])[1])))
    >>> _ = module.recompile()
    >>> module({"a": torch.ones(2), "b": torch.ones(2)})
    [tensor([2., 2.])]
    """

    def __init__(self, pytree_info: _PyTreeInfo) -> None:
        super().__init__()
        self.pytree_info = pytree_info

    def process_inputs(self, *args: Any) -> Any:
        """The values in the arguments."""
        return tuple(arg_tree_leaves(*args))

    def process_outputs(self, outputs: Any) -> Any:
        """The result as it is nested."""
        if self.pytree_info.out_spec is None:
            return outputs
        values = list(outputs) if isinstance(outputs, list | tuple) else [outputs]
        return tree_unflatten(values, self.pytree_info.out_spec)

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        """The head of the function, and a line that takes the arguments apart."""
        names, spec = self.pytree_info.orig_args, self.pytree_info.in_spec
        head = super().gen_fn_def(list(names), maybe_return_annotation)
        given = [name for name in names if name != "self"]
        inside = [name.partition(":")[0].strip() for name in free_vars if name != "self"]
        if not inside:
            return head
        parts = spec.children()
        taken = f"[{', '.join(given)}]"
        if spec.type is tuple and [part.type for part in parts] == [tuple, dict]:  # positional and named ones
            count = parts[0].num_children
            named = ", ".join(f"'{k}':{v}" for k, v in zip(parts[1].context, given[count:], strict=True))
            taken = f"([{', '.join(given[:count])}], {{{named}}})"
        return f"{head}\n    {', '.join(inside)}, = fx_pytree.tree_flatten_spec({taken}, self._in_spec)"

    def generate_output(self, output_args: Any, *, repr_fn: Callable[[Any], str] = repr) -> str:
        """The line that returns the containers."""
        if self.pytree_info.out_spec is None:
            return super().generate_output(output_args, repr_fn=repr_fn)
        return f"return pytree.tree_unflatten({repr_fn(output_args)}, self._out_spec)"
