"""How the caller of a function wrote the call: which arguments were given, by position and by name.

A function cannot tell `unbind(x)` from `unbind(x, 0)` or `unbind(x, dim=0)`, but classes that override it are to be
given what was written. Python keeps that in the caller's code: the instruction that its frame has come to says how many
arguments it passed, and their names. Reading it costs nothing until somebody asks. What a frame does not tell are calls
by `f(*args)` and by functions written in C, such as `map`.

Functions that PyTorch itself writes in Python (`IN_PYTHON`) pass on all their arguments, however they were called.
"""

from __future__ import annotations

import dis
import sys
from bisect import bisect_right
from collections.abc import Callable, Collection
from functools import lru_cache
from inspect import CO_VARARGS, CO_VARKEYWORDS, unwrap
from types import CodeType, FrameType
from typing import Any

from tensorgrad import errors
from tensorgrad.errors import MISSING, NUMPY_NAMES
from tensorgrad.tensor import Tensor

# Functions of `torch`, some of them also methods, and of `torch.nn.functional` that PyTorch writes in Python.
IN_PYTHON = {
    "torch": frozenset((
        "_backward_method", "_split_method", "cdist", "eig", "einsum", "lobpcg", "lstsq", "lu", "matrix_rank",
        "meshgrid", "norm", "pca_lowrank", "solve", "split", "stft", "svd_lowrank", "symeig", "tensordot", "unique",
        "unique_consecutive",
    )),
    "torch.nn.functional": frozenset((
        "adaptive_max_pool1d", "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d",
        "adaptive_max_pool2d_with_indices", "adaptive_max_pool3d", "adaptive_max_pool3d_with_indices", "affine_grid",
        "alpha_dropout", "batch_norm", "binary_cross_entropy", "binary_cross_entropy_with_logits", "celu",
        "cosine_embedding_loss", "cross_entropy", "ctc_loss", "dropout", "dropout1d", "dropout2d", "dropout3d", "elu",
        "embedding", "embedding_bag", "feature_alpha_dropout", "fold", "fractional_max_pool2d",
        "fractional_max_pool2d_with_indices", "fractional_max_pool3d", "fractional_max_pool3d_with_indices",
        "gaussian_nll_loss", "glu", "grid_sample", "group_norm", "gumbel_softmax", "hardtanh", "hinge_embedding_loss",
        "huber_loss", "instance_norm", "interpolate", "kl_div", "l1_loss", "layer_norm", "leaky_relu",
        "linear_cross_entropy", "local_response_norm", "log_softmax", "lp_pool1d", "lp_pool2d", "lp_pool3d",
        "margin_ranking_loss", "max_pool1d", "max_pool1d_with_indices", "max_pool2d", "max_pool2d_with_indices",
        "max_pool3d", "max_pool3d_with_indices", "max_unpool1d", "max_unpool2d", "max_unpool3d", "mish", "mse_loss",
        "multi_head_attention_forward", "multi_margin_loss", "multilabel_margin_loss", "multilabel_soft_margin_loss",
        "nll_loss", "normalize", "pad", "poisson_nll_loss", "relu", "relu6", "rms_norm", "rrelu", "selu", "silu",
        "smooth_l1_loss", "soft_margin_loss", "softmax", "softmin", "threshold", "triplet_margin_loss",
        "triplet_margin_with_distance_loss", "unfold",
    )),
}  # fmt: skip
_CALLS = ("CALL", "CALL_FUNCTION", "CALL_METHOD")
_CALLS_WITH_NAMES = ("CALL_KW", "CALL_FUNCTION_KW")  # the names are the constant before
_MAKERS = ("tensorgrad.dispatch.generate", "tensorgrad.dispatch.guard")
_NUMPYS = frozenset(NUMPY_NAMES.values())
_DEPTH = 12  # how many frames may lie between a function and what asks


def arguments(func: Callable, codes: Collection[CodeType], args: tuple, kwargs: dict[str, Any]) -> Any:
    """Returns the arguments as the call was written: (positional ones, named ones); None if that cannot be known.

    Args:
        func: The function.
        codes: Its code, and that of others through which it may have been called.
        args: All arguments that it has by position, also those that have their default.
        kwargs: All others.
    """
    frame = running(codes)
    counted = None if frame is None else _counted(frame)
    code = getattr(func, "__code__", None)
    if counted is None or code is None or code.co_flags & CO_VARKEYWORDS:
        return None
    count, given = counted
    names = code.co_varnames[: code.co_argcount]
    values = {**dict(zip(names, args)), **kwargs}
    own = {NUMPY_NAMES[name]: name for name in values if name in NUMPY_NAMES and name not in given}
    named = {name: values.get(own.get(name, name), MISSING) for name in given}
    defaults = {**dict(zip(reversed(names), reversed(func.__defaults__ or ()))), **(func.__kwdefaults__ or {})}
    passed = {*names[:count], *given, *(own[name] for name in given if name in own)}
    left_out = [name for name in values if name not in passed]
    if count > len(args) or MISSING in named.values() or not all(_has_default(n, values, defaults) for n in left_out):
        return None  # another call than this function's: that of a `map` or a `partial`
    return args[:count], named


def position_given(frame: FrameType, argument: str) -> int | None:
    """Returns the position, from 1, at which the call of a running function gave an argument. The tensor whose method
    was called is not counted, as in PyTorch's messages. 0: the call has named it; None: that cannot be known, or the
    call is this library's own.

    Args:
        frame: The function's.
        argument: The parameter.
    """
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount]
    caller = _caller(frame)
    ours = caller is None or caller.f_globals.get("__name__", "").partition(".")[0] == "tensorgrad"
    counted = None if ours or argument not in names else _counted(frame)
    if counted is None:
        return None
    count, given = counted
    if argument in given or NUMPY_NAMES.get(argument) in given:
        return 0
    at = names.index(argument)
    if not at:  # even if it is the tensor itself: then it is counted
        return 1
    return at if count <= at or _is_bound(frame, names, count, given) else at + 1


def _is_bound(frame: FrameType, names: tuple[str, ...], count: int, given: tuple[str, ...]) -> bool:
    """Whether a call that passes `count` arguments by position is `x.f(…)`: then the function has one more."""
    if names[0] == "self":
        return True
    held = frame.f_locals
    function = held.get("SELF") or (held["OP"].compiled.call if "OP" in held else None)
    if function is None:  # a composite without a guard
        method = vars(Tensor).get(frame.f_code.co_name)
        function = method if getattr(method, "__code__", None) is frame.f_code else None
    if function is None or count >= len(names):
        return False
    following = names[count]
    defaults = dict(zip(reversed(names), reversed(function.__defaults__ or ())))
    named = following in given or NUMPY_NAMES.get(following) in given
    return not named and (following not in defaults or held.get(following) is not defaults[following])


def running(codes: Collection[CodeType]) -> FrameType | None:
    """Returns the innermost frame of a function that is running, called by what asks; None if it is not.

    Args:
        codes: The function's code, and that of others through which it may have been called.
    """
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_DEPTH):
        if frame is None or frame.f_code in codes:
            return frame
        frame = frame.f_back
    return None


def is_in_python(func: Callable) -> bool:
    """Returns whether PyTorch's own function of this name is written in Python."""
    in_room = func.__module__ in ("tensorgrad.fft", "tensorgrad.linalg", "tensorgrad.special")
    module = "torch.nn.functional" if func.__module__ == "tensorgrad.nn.functional" else "torch"
    return not in_room and getattr(func, "__name__", "") in IN_PYTHON[module]


def completed(func: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Returns the arguments of a call as PyTorch's own functions in Python pass them on: all of them, those that have
    no default by position, the others by name.

    >>> from tensorgrad.overriding import caller_arguments
    >>> caller_arguments.completed(lambda input, dim=0, *, out=None: None, (1,), {})
    ((1,), {'dim': 0, 'out': None})
    """
    func = unwrap(func)  # distributed tensors and transforms wrap methods
    code = func.__code__
    names, defaults = code.co_varnames[: code.co_argcount], func.__defaults__ or ()
    required = code.co_argcount - len(defaults)
    if code.co_flags & CO_VARARGS:
        args = unpacked(args)
        required = len(args)
    values = {**dict(zip(names[required:], defaults)), **(func.__kwdefaults__ or {})}
    values = {name: value for name, value in values.items() if name not in _NUMPYS}
    values |= {**dict(zip(names[required:], args[required:])), **kwargs}
    while len(args) < required and names[len(args)] in values:
        args = (*args, values.pop(names[len(args)]))
    return args[:required], values


def unpacked(args: tuple) -> tuple:
    """Returns the arguments with which `einsum` calls itself if its operands came in a list.

    >>> from tensorgrad.overriding import caller_arguments
    >>> caller_arguments.unpacked(("i,i", [1, 2]))
    ('i,i', 1, 2)
    """
    listed = len(args) == 2 and isinstance(args[0], str) and isinstance(args[1], list | tuple)
    return (args[0], *args[1]) if listed else args


def completed_method(func: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """The same of a method, which has no `out=`."""
    args, values = completed(func, args, kwargs)
    return args, {name: value for name, value in values.items() if name != "out"}


def _has_default(name: str, values: dict[str, Any], defaults: dict[str, Any]) -> bool:
    return name in defaults and values[name] is defaults[name]


def _counted(frame: FrameType) -> tuple[int, tuple[str, ...]] | None:
    """Returns what the call of a function that is running says: see `_calls`."""
    caller = _caller(frame)
    if caller is None:
        return None
    offsets, counted = _calls(caller.f_code)
    at = bisect_right(offsets, caller.f_lasti) - 1  # Python may already be in the cache after the instruction
    return counted[at] if at >= 0 else None


def _caller(frame: FrameType) -> FrameType | None:
    """Returns the frame that called a function."""
    caller = frame.f_back
    while caller is not None and _is_placeholder(caller):
        caller = caller.f_back
    return caller


def _is_placeholder(frame: FrameType) -> bool:
    """Whether a frame is that of a function which has just been compiled, and calls it (dispatch/codegen.py), or which
    passes its arguments on to the `original` that it wraps (distributed/tensor/ops/composites.py)."""
    made_in, code = frame.f_globals.get("__name__", ""), frame.f_code
    if "original" in code.co_freevars and code.co_flags & CO_VARARGS and made_in.partition(".")[0] == "tensorgrad":
        return True
    return made_in in _MAKERS and not frame.f_code.co_filename.startswith("<tensorgrad generated")


@lru_cache(maxsize=256)
def _calls(code: CodeType) -> tuple[list[int], list[tuple[int, tuple[str, ...]] | None]]:
    """Returns, for each instruction, its offset and (how many arguments it passes by position, the names of the
    others); None if it calls nothing, or `f(*args)`."""
    offsets: list[int] = []
    found: list[tuple[int, tuple[str, ...]] | None] = []
    names: tuple[str, ...] = ()
    before: Any = None
    for instruction in dis.get_instructions(code):
        counted = None
        if instruction.opname == "KW_NAMES":
            names = code.co_consts[instruction.arg or 0]
        elif instruction.opname in _CALLS:
            counted = (instruction.arg or 0) - len(names), names
            names = ()
        elif instruction.opname in _CALLS_WITH_NAMES and isinstance(before, tuple):
            counted = (instruction.arg or 0) - len(before), before
        offsets.append(instruction.offset)
        found.append(counted)
        before = instruction.argval  # of LOAD_CONST: the constant
    return offsets, found


errors.POSITION_GIVEN = position_given
