"""What Python code runs within a region: its functions, and calls whose effects are not known.

While a region is recorded, `sys.setprofile` reports every call. What this library calls is its own affair. Of the
program's functions the code objects are kept: the names in them are those that the region may have read
(capture/state.py). A call out of the program to anything that is not on a list of harmless functions refuses the plan.
"""

from __future__ import annotations

import gc
import sys
from dis import get_instructions
from types import BuiltinFunctionType, CodeType, FrameType, ModuleType
from typing import Any

OWN, STANDARD, USER, MADE = "own", "standard", "user", "made"

# Modules of the standard library whose Python functions have no effects beside their results.
_HARMLESS = frozenset(
    ("abc", "collections", "collections.abc", "contextlib", "copy", "dataclasses", "enum", "functools", "inspect",
     "itertools", "math", "numbers", "operator", "re", "types", "typing", "_collections_abc", "copyreg", "_weakrefset")
)  # fmt: skip
_HARMLESS_BUILTINS = frozenset(
    ("abs", "all", "any", "bin", "callable", "chr", "divmod", "format", "getattr", "hasattr", "hash", "isinstance",
     "issubclass", "iter", "len", "max", "min", "next", "ord", "pow", "repr", "round", "setattr", "sorted", "sum",
     "delattr", "__build_class__", "vars", "dir")
)  # fmt: skip
_HARMLESS_C = frozenset(
    (
        "math",
        "cmath",
        "operator",
        "_operator",
        "itertools",
        "functools",
        "_functools",
        "_collections",
        "_abc",
        "_typing",
    )
)
_VALUES = (list, tuple, dict, set, frozenset, str, bytes, int, float, complex, bool, slice, range, type(None))
# With these, a program may read any attribute, not only those that its code names.
_ANY_NAME = frozenset(("vars", "dir", "getattr", "hasattr", "setattr", "delattr"))
# What a program cannot ask for while a plan stands in for it: places in memory, versions, its own frames.
_REFUSED_NAMES = frozenset(
    ("_version", "data_ptr", "_array", "_storage", "_memory", "untyped_storage", "storage", "__array_interface__",
     "_cdata", "f_locals", "f_globals", "_getframe", "__globals__", "grad_fn", "_grad_fn", "retain_grad",
     "register_hook", "register_post_accumulate_grad_hook")
)  # fmt: skip
# By these, and by the instructions below, code may change Python's objects. Others make them, or give local names.
_CHANGING_NAMES = frozenset(
    ("append", "extend", "insert", "remove", "pop", "popitem", "clear", "sort", "reverse", "update", "setdefault",
     "add", "discard", "setattr", "delattr", "next", "send", "move_to_end", "appendleft", "popleft", "rotate")
)  # fmt: skip
_CHANGING = frozenset(
    ("STORE_GLOBAL", "STORE_ATTR", "STORE_SUBSCR", "STORE_SLICE", "STORE_DEREF", "STORE_NAME", "DELETE_GLOBAL",
     "DELETE_ATTR", "DELETE_SUBSCR", "DELETE_DEREF", "DELETE_NAME", "IMPORT_NAME")
)  # fmt: skip
_READS = frozenset(
    ("item", "tolist", "numpy", "__bool__", "__float__", "__int__", "__index__", "__complex__", "__array__")
)
_ASKED = ("tensorgrad.distributed.tensor.ops.",)  # whether they apply: not to plain tensors
# Parts of this library that keep state in Python, or do what is not computation.
_NOT_PLANNED = (
    "tensorgrad.utils.data", "tensorgrad.serialization", "tensorgrad.distributed", "tensorgrad.optim.lr_scheduler",
    "tensorgrad.multiprocessing", "tensorgrad.hub", "tensorgrad.profiler", "tensorgrad.viz",
    "tensorgrad.amp.grad_scaler",
    "tensorgrad.optim.swa_utils", "tensorgrad.utils.tensorboard", "tensorgrad.quasirandom", "tensorgrad.futures",
    "tensorgrad.autograd.handles", "tensorgrad.printing", "tensorgrad.nn.parallel", "tensorgrad.utils.checkpoint",
    "tensorgrad.optim.lbfgs", "tensorgrad.optim.sparse_adam", "tensorgrad.optim._adafactor", "tensorgrad.optim._muon",
    "tensorgrad.nn.module_hooks", "tensorgrad.jit", "tensorgrad.testing", "tensorgrad.debug",
    "tensorgrad.nn.utils.parametriz",
)  # fmt: skip


class Watch:
    """Within its `with` block: what code runs in this thread.

    Attributes:
        codes: the code objects of the program that ran, each with its module's globals.
        reason: why what ran cannot become a plan; "" if nothing stands against it.
        any_name: whether the program may have read attributes that its code does not name.
        differentiates: whether a backward pass ran, which calls hooks of leaves.
    """

    def __init__(self) -> None:
        self.codes: dict[CodeType, dict[str, Any]] = {}
        self.reason = ""
        self.any_name = self.differentiates = False
        self._kinds: dict[int, str] = {}
        self._keep: list[Any] = []
        self._importing = 0

    def may_change(self) -> bool:
        """Whether the code that ran may change what outlives it, as far as its instructions tell."""
        return self.any_name or any(map(_may_change, self.codes))

    def __enter__(self) -> Watch:
        self.before = sys.getprofile()
        self.collects = gc.isenabled()
        gc.disable()  # what the collector calls (finalizers, `gc.callbacks`) is not of the program
        if self.before is None:
            sys.setprofile(self._event)
        else:
            self._refuse("a profiler is on (sys.setprofile), by which regions are recorded", None)
        return self

    def __exit__(self, *exception: Any) -> None:
        if self.before is None:
            sys.setprofile(None)
        if self.collects:
            gc.enable()

    def _refuse(self, reason: str, frame: FrameType | None) -> None:
        if not self.reason:
            where = "" if frame is None else f" ({frame.f_code.co_filename}, line {frame.f_lineno})"
            self.reason = reason + where

    def _kind(self, frame: FrameType) -> str:
        """Whose code a frame runs: what the standard library or NumPy does for this library is this library's, and so
        is a named tuple that it makes. The function that makes it, `collections` has written."""
        code = frame.f_code
        kind = self._kinds.get(id(code))
        if kind is None:
            self._keep.append(code)
            kind = self._kinds[id(code)] = _kind_of(frame.f_globals.get("__name__") or "", code)
        if kind is MADE:
            return OWN if frame.f_back is not None and self._kind(frame.f_back) is OWN else USER
        if kind is STANDARD:
            around = frame.f_back
            while around is not None:
                other = self._kinds.get(id(around.f_code)) or _kind_of(
                    around.f_globals.get("__name__") or "", around.f_code
                )
                if other is not STANDARD:
                    return OWN if other is OWN else STANDARD
                around = around.f_back
        return kind

    def _event(self, frame: FrameType, event: str, arg: Any) -> None:
        if frame.f_code.co_name == "_find_and_load" and frame.f_code.co_filename.startswith("<frozen importlib"):
            self._importing += (event == "call") - (event == "return")  # a first import: not so the next time
        if self._importing:
            return
        if event == "call":
            kind = self._kind(frame)
            if kind is USER:
                if frame.f_code not in self.codes:
                    self._new(frame)
            elif kind is STANDARD:
                name = frame.f_globals.get("__name__") or ""
                if name not in _HARMLESS and not (name == "weakref" and frame.f_code.co_name == "remove"):
                    self._refuse(f"it calls {name}.{frame.f_code.co_name}, whose effects are not known", frame.f_back)
            else:
                name = frame.f_globals.get("__name__") or ""
                if name == "tensorgrad.tensor" and frame.f_code.co_name in _READS and self._by_program(frame):
                    self._refuse(f"it reads a value ({frame.f_code.co_name})", frame.f_back)
                if name == "tensorgrad.autograd.engine" and frame.f_code.co_name == "run":
                    self.differentiates = True
                if name == "tensorgrad.capture.compiled" and frame.f_code.co_name == "graph_break":
                    self._refuse("it asks for a graph break", self._caller(frame))
                if name == "tensorgrad.nn.module_hooks" and frame.f_code.co_name != "run":
                    return
                if name.startswith(_NOT_PLANNED) and not name.startswith(_ASKED):
                    self._refuse(
                        f"it calls {name}.{frame.f_code.co_name}, which a plan would skip", self._caller(frame)
                    )
        elif event == "c_call" and self._kind(frame) is USER:
            self._builtin(arg, frame)

    def _by_program(self, frame: FrameType) -> bool:
        """Whether the program calls this method, by itself or through the guard of its arguments."""
        around = frame.f_back
        while around is not None and around.f_globals.get("__name__") == "tensorgrad.dispatch.guard":
            around = around.f_back
        return around is not None and self._kind(around) is USER

    def _caller(self, frame: FrameType) -> FrameType | None:
        around = frame.f_back
        while around is not None and self._kind(around) is not USER:
            around = around.f_back
        return around

    def _new(self, frame: FrameType) -> None:
        code = frame.f_code
        self.codes[code] = frame.f_globals
        found = _REFUSED_NAMES.intersection(code.co_names)
        if found:
            self._refuse(f"its function {code.co_name} uses '{min(found)}'", frame)

    def _builtin(self, function: Any, frame: FrameType) -> None:
        name, owner = getattr(function, "__name__", "?"), getattr(function, "__self__", None)
        if isinstance(owner, ModuleType) or owner is None:
            module = getattr(function, "__module__", None) or getattr(
                getattr(function, "__objclass__", None), "__module__", ""
            )
            if module == "builtins" and isinstance(function, BuiltinFunctionType):
                if name in _HARMLESS_BUILTINS:
                    if name in _ANY_NAME:
                        self.any_name = True
                    return
            elif module in _HARMLESS_C or getattr(function, "__objclass__", None) in _VALUES:
                return
        elif isinstance(owner, _VALUES) or owner is object or (isinstance(owner, type) and owner in _VALUES):
            if owner.__class__.__module__.startswith("numpy"):
                self._refuse(f"it calls {name} of NumPy, whose effects are not known", frame)
            return
        self._refuse(f"it calls {_qualified(function)}, whose effects are not known", frame)


def _may_change(code: CodeType) -> bool:
    return not _CHANGING_NAMES.isdisjoint(code.co_names) or any(
        i.opname in _CHANGING or i.opname.startswith("INPLACE_") or (i.opname == "BINARY_OP" and "=" in i.argrepr)
        for i in get_instructions(code)
    )


def _qualified(function: Any) -> str:
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", "?")
    return str(name) if module in (None, "builtins") else f"{module}.{name}"


def _kind_of(module: str, code: CodeType) -> str:
    top = module.partition(".")[0]
    if top == "tensorgrad" or code.co_filename.startswith("<tensorgrad"):
        return OWN
    if top.startswith("namedtuple_") and code.co_filename == "<string>":
        return MADE
    if top in sys.stdlib_module_names or top == "numpy" or code.co_filename.startswith("<frozen"):
        return STANDARD if top != "__main__" else USER
    return USER
