"""Composites with distributed tensors: functions and methods that are written in terms of ops.

The body of a composite may ask an array for its shape, which is that of one rank's piece. So it never runs on pieces
unless its name is in `ON_PIECES`, or a rule of `views.py` applies. All others run on the whole tensors, on every rank.

Every call of a composite with a distributed tensor comes here: from the guards of functions (dispatch/guard.py), and
from the methods of `DTensor`, which this file makes of those of `Tensor`. Methods of ordinary tensors stay as they are:
the ops that they consist of find the distributed tensor among their arguments.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache, wraps
from types import FunctionType
from typing import Any

import tensorgrad as torch
from tensorgrad.dispatch import guard, inplace
from tensorgrad.distributed.tensor._dtensor_spec import DTensorSpec
from tensorgrad.distributed.tensor.dtensor import DTensor, as_dtensor, mixed
from tensorgrad.distributed.tensor.ops.views import VIEWS
from tensorgrad.distributed.tensor.placement_types import Replicate
from tensorgrad.tensor import PLAIN, Tensor

__all__ = ["INSTEAD", "ON_PIECES", "handle", "install"]

# Composites whose bodies consist of ops, or ask only for the dtype: each op then chooses how it runs.
ON_PIECES = frozenset((
    "add", "sub", "rsub", "subtract", "div", "divide", "true_divide", "positive", "pow", "float_power", "clamp", "clip",
    "where", "masked_fill", "softmax", "log_softmax", "permute", "clone", "to", "bool", "short", "int", "long", "half",
    "bfloat16", "float", "double", "cfloat", "cdouble", "byte", "char", "cpu", "type", "contiguous", "gelu", "silu",
    "relu", "zeros_like", "ones_like", "empty_like",
    "full_like", "is_floating_point", "is_complex", "is_signed", "is_inference", "get_device", "result_type",
    "is_distributed", "zero_", "__pow__", "__pos__", "__invert__", "is_conj", "is_neg",
))  # fmt: skip
# Those that may move the pieces to another device: a tensor stays distributed as it is.
MOVES = frozenset(("to", "cpu", "cuda"))
# What runs instead of a composite while something asks for it: `loss_parallel` does.
INSTEAD: dict[str, Callable[..., Any]] = {}
# Methods that look at no values, or whose subject is this rank's memory.
AS_THEY_ARE = frozenset((
    "dim", "ndimension", "_dim_error", "stride", "storage_offset", "element_size", "data_ptr", "__dir__", "detach_",
    "_is_view", "as_subclass", "__repr__", "is_contiguous", "is_pinned", "is_shared", "share_memory_", "pin_memory",
    "record_stream", "untyped_storage", "storage", "_typed_storage", "storage_type", "const_data_ptr", "module_load",
    "render", "register_post_accumulate_grad_hook", "retain_grad",
))  # fmt: skip
# Methods that change the shape of a tensor, or give it other memory.
REFUSED = frozenset((
    "squeeze_", "unsqueeze_", "t_", "transpose_", "swapaxes_", "swapdims_", "as_strided_", "resize_", "resize_as_",
    "set_", "is_set_to", "apply_", "map_", "map2_",
))  # fmt: skip


def handle(function: Any, *args: Any, **options: Any) -> Any:
    """Runs a guarded composite on arguments of which some are distributed; `NotImplemented` if its body may run."""
    return run(function.__name__, function, args, options)


def run(name: str, function: Any, args: tuple, options: dict[str, Any]) -> Any:
    """Runs a composite on arguments of which some are distributed.

    Args:
        name: what users call it.
        function: the composite, or its guard.
        args: its arguments.
        options: those given by name.

    Returns:
        Its result; `NotImplemented` if no argument is distributed, or its body may run as it is.

    Raises:
        RuntimeError: some tensors are distributed and others are not, or they are on different meshes.
        NotImplementedError: `out=`, or a method that changes a tensor's shape in place.
    """
    found = _distributed(args, options)
    if not found:
        return NotImplemented
    if name in INSTEAD:
        return INSTEAD[name](*args, **options)
    if name in ("numel", "detach") or name.startswith("new_"):
        return _METHODS[name](*args, **options)
    check(name, args, options)
    if options.get("out") is not None or name in REFUSED:
        raise NotImplementedError(
            f"{name}: not supported for distributed tensors{' with out=' if name not in REFUSED else ''}"
        )
    options = {key: value for key, value in options.items() if key != "out"}
    if _in_place(function, name, args, options):
        return _write(function, name, *args, **options)
    if name in MOVES and isinstance(args[0], DTensor) and len(found) == 1:
        return _moved(function, args[0], args[1:], options)
    if name in ON_PIECES or (_is_row(name) and not options):
        return NotImplemented
    rule = VIEWS.get(name)
    result = rule(function, *args, **options) if rule is not None else NotImplemented
    return on_whole(function, found[0].device_mesh, args, options) if result is NotImplemented else result


def check(name: str, args: Any, options: dict[str, Any]) -> None:
    """Raises: RuntimeError unless all tensors are distributed on one mesh, or have no dimensions."""
    tensors = _tensors((args, options))
    known = [t._spec for t in tensors if isinstance(t, DTensor)]
    if any(spec.mesh != known[0].mesh for spec in known):
        raise RuntimeError(f"{name}: distributed tensors are on different meshes: {[spec.mesh for spec in known]}")
    if not DTensor._implicit_replication and any(t.ndim and not isinstance(t, DTensor) for t in tensors):
        raise mixed(name, known)


def on_whole(function: Any, mesh: Any, args: tuple, options: dict[str, Any]) -> Any:
    """Runs a function on the whole tensors; results are replicated. What it writes to them, each rank's piece gets."""
    given, named = _whole(args), _whole(options)
    pairs = [
        (tensor, whole, whole._storage.version)
        for tensor, whole in zip(_tensors((args, options)), _tensors((given, named)), strict=True)
        if isinstance(tensor, DTensor) and whole._storage is not tensor._storage
    ]
    result = function(*given, **named)
    for tensor, whole, version in pairs:
        if whole._storage.version != version:  # such as the running means of batch_norm
            with torch.no_grad():
                everyones = _replicated(whole.detach(), tensor.device_mesh)
                tensor._local_tensor.copy_(everyones.redistribute(placements=tensor.placements).to_local())
    return _replicated(result, mesh)


def _moved(function: Any, tensor: DTensor, args: tuple, options: dict[str, Any]) -> DTensor:
    """A tensor whose pieces are on another device, or of another dtype; the tensor itself if nothing changes."""
    piece = Tensor.as_subclass(tensor, Tensor)
    made = function(piece, *args, **options)
    return tensor if made is piece else as_dtensor(made, tensor._spec)


def _distributed(args: tuple, options: dict[str, Any], around: tuple = ()) -> list[DTensor]:
    """Returns the distributed tensors, also those in nested lists; not in a list that is inside itself."""
    found = []
    for value in (*args, *options.values()) if options else args:
        if isinstance(value, DTensor):
            found.append(value)
        elif value.__class__ in (list, tuple, dict) and not any(value is outer for outer in around):
            inside = tuple(value.values()) if isinstance(value, dict) else tuple(value)
            found += _distributed(inside, {}, (*around, value))
    return found


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = tuple(value.values())
    return [t for item in value for t in _tensors(item)] if isinstance(value, list | tuple) else []


def _mapped(value: Any, convert: Callable[[Any], Any]) -> Any:
    """Nested values with `convert` applied to every tensor."""
    if isinstance(value, Tensor):
        return convert(value)
    if isinstance(value, dict):
        return type(value)((key, _mapped(item, convert)) for key, item in value.items())
    if isinstance(value, list | tuple) and _tensors(value):
        items = [_mapped(item, convert) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def _whole(value: Any) -> Any:
    def whole(tensor: Tensor) -> Tensor:
        if not isinstance(tensor, DTensor):
            return tensor
        gathered = tensor.redistribute(placements=(Replicate(),) * tensor.device_mesh.ndim)
        return Tensor.as_subclass(gathered, Tensor)

    return _mapped(value, whole)


def _replicated(value: Any, mesh: Any) -> Any:
    def replicated(tensor: Tensor) -> Tensor:
        if isinstance(tensor, DTensor):
            return tensor
        return as_dtensor(tensor, DTensorSpec(mesh, (Replicate(),) * mesh.ndim, tuple(tensor.shape)))

    return _mapped(value, replicated)


# --- in place ---------------------------------------------------------------------------------------------------------


def _in_place(function: Any, name: str, args: tuple, options: dict[str, Any]) -> bool:
    if name == "__setitem__":
        return True
    if name.endswith("_") and not name.startswith("_"):
        return name != "zero_" and (bool(options) or not _is_row(name))
    return bool(options.get("inplace", False)) or _position(function, args)


def _is_row(name: str) -> bool:
    """Whether this is the in-place form of a row: it runs the op, and asks the tensor how to store the result."""
    return name.endswith("_") and (hasattr(getattr(Tensor, name[:-1], None), "op") or name in ("add_", "sub_", "div_"))


def _position(function: Any, args: tuple) -> bool:
    """Whether the parameter `inplace` was given by position."""
    at = _place_of_inplace(function)
    return at is not None and len(args) > at and bool(args[at])


@cache
def _place_of_inplace(function: Any) -> int | None:
    names = list(inspect.signature(function).parameters)
    return names.index("inplace") if "inplace" in names else None


def _write(function: Any, name: str, target: Any, *args: Any, **options: Any) -> Any:
    """Runs a composite that writes to its first argument: on a copy of the whole, of which ranks keep their pieces."""
    if not isinstance(target, DTensor):
        raise mixed(name, [t._spec for t in _distributed(args, options)])
    whole_elements = not any(p.is_partial() for p in target.placements)
    if name == "copy_" and whole_elements and isinstance(args[0], DTensor) and args[0].shape == target.shape:
        return _METHODS[name](target, args[0].redistribute(placements=target.placements))
    if name == "fill_" and whole_elements:
        return _METHODS[name](target, *args, **options)

    def computed(tensor: DTensor, *values: Any, **named: Any) -> Any:
        whole = _whole(tensor).clone()
        result = function(whole, *_whole(values), **_whole(named))
        return _replicated(whole if result is None else result, tensor.device_mesh)

    result = inplace.replace(target, computed, args, options)
    return None if name == "__setitem__" else result


# --- methods ----------------------------------------------------------------------------------------------------------
# What takes the place of a method calls it `original`: by that name messages pass over it, to the program's
# own call (overriding/caller_arguments.py).

_METHODS: dict[str, Any] = {}  # those of Tensor, and a few of this file


def _new(name: str) -> Callable[..., Any]:
    """`x.new_zeros(...)`: replicated."""

    def new(x: DTensor, *args: Any, **options: Any) -> DTensor:
        return _replicated(_METHODS["Tensor." + name](x._local_tensor, *args, **options), x.device_mesh)

    return new


def _method(name: str, original: Any) -> Any:
    @wraps(original)
    def method(self: Any, *args: Any, **options: Any) -> Any:
        if not args and not options and self.__class__ in PLAIN:
            return original(self)
        result = run(name, original, (self, *args), options)
        return original(self, *args, **options) if result is NotImplemented else result

    return method


def _name_of(name: str, original: Any) -> str:
    """What a method is called; the operators that write, such as `+=`, by the method that they are (`add_`)."""
    own = original.__name__
    return own if name.startswith("__i") and own.endswith("_") and not own.startswith("_") else name


def _property(name: str, original: Any) -> property:
    def of_whole(self: DTensor) -> Any:
        return on_whole(original.fget, self.device_mesh, (self,), {})

    of_whole.__name__ = name
    return property(of_whole, original.fset, None, original.__doc__)


def install() -> None:
    """Lets guards and methods come here. `DTensor`'s own methods stay as they are."""
    for name, original in list(vars(Tensor).items()):
        if isinstance(original, FunctionType) and not hasattr(original, "op") and name not in AS_THEY_ARE:
            _METHODS[name] = original
            called = _name_of(name, original)
            if name.startswith("new"):
                _METHODS["Tensor." + name], _METHODS[name] = original, _new(name)
            if name in vars(DTensor):
                continue
            setattr(DTensor, name, _METHODS[name] if name.startswith("new") else _method(called, original))
    for name in ("T", "mT", "mH", "H", "real", "imag"):
        setattr(DTensor, name, _property(name, vars(Tensor)[name]))
    _METHODS["numel"], _METHODS["detach"] = DTensor.numel, DTensor.detach
    guard.intercept(handle)
