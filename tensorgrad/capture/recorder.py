"""The recorder: runs a program eagerly, and notes in a graph what it does on arrays.

It is the outermost of the transforms that are on (transforms/transform.py), so it sees what everything else comes down
to: composites, vmap, tangents and backward passes arrive as ops. Each op runs as ever, on the real arrays; then its
result is masked: the tensor holds a traced array (capture/traced.py) until the recording ends.

What is not an op is noted too: writes in place, gradients that leaves get, random draws, reads of values. A write that
the recorder did not see raises an error when it finds the version of the memory changed.
"""

from __future__ import annotations

import sys
import threading
from functools import partial
from operator import is_not
from typing import Any

import numpy as np

from tensorgrad.autograd.graph import FREED
from tensorgrad.capture import steps
from tensorgrad.capture.masks import real_array, real_saved, unmask
from tensorgrad.capture.writes import Writes
from tensorgrad.fx import Node
from tensorgrad.random.generator import WATCHERS
from tensorgrad.rows.kernel_tables import OPS
from tensorgrad.rows.switches import LOCAL
from tensorgrad.storage.cpu import READERS
from tensorgrad.tensor import Tensor, share


class ReadError(RuntimeError):
    """A program that is being recorded read the value of a tensor: its graph would hold for this value only."""


class Recorder(Writes):
    """Records what this thread does within a `with` block: see `Nodes` for what it knows."""

    def __enter__(self) -> Recorder:
        if LOCAL.transforms:
            raise RuntimeError("record(): cannot begin inside of vmap, jvp or another recording")
        self.thread = threading.get_ident()
        super().__enter__()
        self.active = True
        READERS.append(self._read_plain)
        WATCHERS.append(self._generator_changed)
        return self

    def __exit__(self, *exception: Any) -> None:
        self.active = False
        READERS.remove(self._read_plain)
        WATCHERS.remove(self._generator_changed)
        super().__exit__(*exception)
        for reference in self._masked:
            tensor = reference()
            if tensor is not None:
                unmask(tensor)
        for reference in self._saving:
            node = reference()
            if node is not None and node.saved is not FREED:
                node.saved = real_saved(node.saved)

    # --- reads -------------------------------------------------------------------------------------------------------

    def read(self, array: Any, node: Node | None, what: str) -> None:
        """Called before values of the program are read.

        What this library reads by itself, to check arguments, becomes a check of the graph.

        Raises: ReadError for a read of the program's, unless these are noted.
        """
        frame: Any = sys._getframe(2)
        while frame.f_back is not None and _of_tensors(frame):
            frame = frame.f_back
        own = frame.f_globals.get("__name__", "").startswith("tensorgrad.")
        while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("tensorgrad."):
            frame = frame.f_back
        where = f"({frame.f_code.co_filename}, line {frame.f_lineno})"
        name = "a tensor" if node is None else f"'{node.name}'"
        if (self.on_read == "raise" and not own) or node is None:
            raise ReadError(
                f"record(): the value of {name}, of shape {list(array.shape)}, is read as {what} {where}: what the "
                "program does with it cannot be recorded. Use torch.where and the like, or record(..., "
                "on_read='note'), whose graph checks that the value is the same."
            )
        made = self.call(steps.check_values, (node, _listed(array)))
        self.note("read", made, f"reads {name} {where}")

    def _read_plain(self, array: Any) -> None:
        """Called before an array on the CPU is read, in any thread."""
        if LOCAL.transforms[:1] != (self,) or self.reading:
            return
        node = self._find(array)
        if node is None:
            fresh = self._fresh.get(id(array))
            if fresh is not None and fresh() is array:
                return  # made of plain values
            node = self.node_of(share(array, None))
        elif any(node is constant for constant in self._constants.values()) and not self._written:
            return
        self.read(array, node, "a value")

    def _generator_changed(self, generator: Any, what: str, value: Any) -> None:
        """Called when a generator is seeded, or its state set or read, in any thread."""
        if LOCAL.transforms[:1] != (self,):
            return
        if what == "draw":
            raise NotImplementedError("record(): random numbers are drawn in a way that is not recorded")
        if what == "entropy":
            raise ReadError("record(): a generator is seeded from the system: its seed is a value of this run only")
        own = self.attribute("_generator", generator)
        if what == "read":
            self._states[value.tobytes()] = self.call(steps.generator_state, (own,))
            return
        if what == "seed":
            made = self.call(steps.seed_generator, (own, value))
        else:  # most often back to where it was
            known = self._states.get(np.ascontiguousarray(value).tobytes())
            made = self.call(steps.set_generator_state, (own, self.argument(value) if known is None else known))
        self.note("random", made, f"sets the {what} of a generator of random numbers")

    # --- the end -----------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Gives constants that are written to, or returned, fresh memory in each run."""
        for key in self._written:
            node = self._constants[key]
            with self.graph.inserting_after(node):
                copy = self.graph.call_function(OPS["clone_copy"].compiled.call, (node, None))
            copy.meta["val"] = node.meta.get("val")
            node.replace_all_uses_with(copy, partial(is_not, copy))

    def returned(self, tensor: Tensor) -> Node:
        """The node of a tensor that is returned."""
        node = self.node_of(tensor)
        real = real_array(tensor)
        for key in self._constants:
            if np.may_share_memory(self._owners[key][0], real):
                self._written.add(key)
        return node


def _listed(array: Any) -> Any:
    return (array.astype(np.float32) if array.dtype.isbuiltin == 2 else array).tolist()


def _of_tensors(frame: Any) -> bool:
    """Whether a function is one by which a program reads tensors."""
    name = frame.f_globals.get("__name__", "")
    return name.startswith(_BY_WHICH_PROGRAMS_READ)


_BY_WHICH_PROGRAMS_READ = (
    "tensorgrad.tensor", "tensorgrad.printing", "tensorgrad.ops.create", "tensorgrad.dispatch.guard",
    "tensorgrad.overriding.", "tensorgrad.library.dispatch_", "tensorgrad.distributed.tensor.ops.composites",
    "tensorgrad.storage.", "tensorgrad.capture.",
)  # fmt: skip
