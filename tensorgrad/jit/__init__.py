"""`torch.jit`: programs of TorchScript, scripted, traced, loaded and saved."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any, Final

from tensorgrad.jit import frontend, overloads
from tensorgrad.jit.errors import Error
from tensorgrad.system.names_elsewhere import elsewhere

__all__ = [
    "Error", "Final", "ScriptFunction", "annotate", "export", "freeze", "ignore", "is_scripting", "is_tracing",
    "isinstance", "load", "optimize_for_inference", "save", "script", "script_if_tracing", "script_method", "trace",
    "trace_module", "unused",
]  # fmt: skip


def script(obj: Any, *args: Any, **options: Any) -> Any:
    """Compiles a module, function or class to a program of TorchScript, which `torch.jit.save` writes.

    The source is read, not run. What a call returns is computed by the program. A source that may be TorchScript but
    uses what has no operator in programs here (most of `torch.nn` has) is returned unchanged and runs as Python;
    `torch.jit.save` says why.

    Args:
        obj: A module, whose `forward` and exported methods are compiled, with all that they call; a function; or a
            class, which is returned as it is, and compiled with the functions that use it.
        args, options: accepted for compatibility.

    Raises:
        torch.jit.frontend.UnsupportedNodeError: If the source has a construct that TorchScript does not have; the
            message shows the line.
        RuntimeError: If types do not fit, or a name stands for nothing; likewise.

    >>> @torch.jit.script
    ... def clip(x, limit: float = 1.0):
    ...     if bool(x.sum() > limit):
    ...         return x * 0
    ...     return x
    >>> clip(torch.ones(2))
    tensor([0., 0.])
    """
    from tensorgrad.jit.scripting.entry import script as compiled

    return compiled(obj)


class TracerWarning(Warning):
    """PyTorch's warning about values that a trace would keep as constants; here nothing gives it.

    >>> import warnings
    >>> warnings.filterwarnings("ignore", category=torch.jit.TracerWarning)
    """

    @staticmethod
    def ignore_lib_warnings() -> None:
        """Does nothing: no function of the library gives this warning.

        >>> torch.jit.TracerWarning.ignore_lib_warnings()
        """


class ScriptWarning(Warning):
    """PyTorch's warning about what scripting cannot express; here nothing gives it.

    >>> issubclass(torch.jit.ScriptWarning, Warning)
    True
    """


def trace(func: Any, example_inputs: Any = None, *args: Any, **options: Any) -> Any:
    """Runs a function or module once on an example, and returns it as a traced module, with a program.

    The program has the operators that were called on the example, with its sizes; `torch.jit.save` writes it. Calls of
    what this returns call `func` itself, so other sizes work there, and what depends on values is not frozen. If no
    program can be made, `torch.jit.save` says why.

    Args:
        func: A function or module.
        example_inputs: A tensor, or a tuple of arguments.
        args, options: PyTorch's; of these `example_kwarg_inputs`, a dict of arguments, means something.

    >>> traced = torch.jit.trace(torch.nn.Flatten(), torch.ones(2, 3, 1))
    >>> traced(torch.ones(1, 2, 2))
    tensor([[1., 1., 1., 1.]])
    """
    named = options.get("example_kwarg_inputs") or {}
    given = () if example_inputs is None else example_inputs
    given = tuple(given) if type(given) in (tuple, list) else (given,)
    if builtins.isinstance(func, _scripted()) or not (given or named):
        return func
    from tensorgrad.jit.tracing import traced

    return traced(func, given, named)


def trace_module(mod: Any, inputs: dict[str, Any], *args: Any, **options: Any) -> Any:
    """Traces the `forward` of a module, as `trace` does, and runs the other methods in `inputs` once.

    >>> torch.jit.trace_module(torch.nn.ReLU(), {"forward": torch.ones(2)})
    TopLevelTracedModule(original_name=ReLU)
    """
    for method, example in inputs.items():
        if method != "forward":
            getattr(mod, method)(*(example if type(example) in (tuple, list) else (example,)))
    return trace(mod, inputs["forward"]) if "forward" in inputs else mod


def _scripted() -> Any:
    from tensorgrad.jit.objects import Scripted

    return Scripted


def _unchanged(obj: Any = None, *args: Any, **options: Any) -> Any:
    """Returns the function or module unchanged (or, called with options only, a decorator that does).

    >>> @torch.jit.script_if_tracing
    ... def double(x):
    ...     return 2 * x
    >>> double(torch.ones(2))
    tensor([2., 2.])
    """
    return (lambda function: function) if obj is None or obj.__class__ in (bool, str) else obj


def _marked(obj: Any, mark: str) -> Any:
    if obj is None or obj.__class__ in (bool, str):
        return lambda function: _marked(function, mark)
    target: Any = obj.fget if builtins.isinstance(obj, property) else obj
    if hasattr(target, "__dict__"):
        target._torchscript_modifier = mark
    return obj


def ignore(drop: Any = False, **options: Any) -> Any:
    """Marks a method that stays Python: what calls it has no program.

    >>> @torch.jit.ignore
    ... def double(x):
    ...     return 2 * x
    >>> double(torch.ones(2))
    tensor([2., 2.])
    """
    return _marked(drop, "ignore")


def unused(fn: Any) -> Any:
    """Marks a method that programs do not call: in a program, it raises an error.

    >>> @torch.jit.unused
    ... def double(x):
    ...     return 2 * x
    >>> double(torch.ones(2))
    tensor([2., 2.])
    """
    return _marked(fn, "unused")


def export(fn: Any) -> Any:
    """Marks a method that is compiled with a module's `forward`.

    >>> class Scaled(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x
    ...     @torch.jit.export
    ...     def scaled(self, x, by: float):
    ...         return x * by
    >>> torch.jit.script(Scaled()).scaled(torch.ones(2), 3.0)
    tensor([3., 3.])
    """
    return _marked(fn, "export")


script_method = script_if_tracing = freeze = optimize_for_inference = _unchanged
_overload = _overload_method = overloads.declare
_script_if_tracing = _unchanged


def interface(obj: Any) -> Any:
    """Declares a class as an interface: its methods say what arguments and results of that type can do.

    Values of any class that has such methods have its type. A class that derives from `torch.nn.Module` is the type of
    modules; one that derives from nothing, of objects.

    Args:
        obj: The class. Its methods have annotations, and `pass` in place of their lines.

    Raises:
        RuntimeError: If it is not a class, or derives from another.

    >>> @torch.jit.interface
    ... class Layer(torch.nn.Module):
    ...     def forward(self, input: torch.Tensor) -> torch.Tensor:
    ...         pass
    >>> class Twice(torch.nn.Module):
    ...     layer: Layer
    ...     def __init__(self, layer):
    ...         super().__init__()
    ...         self.layer = layer
    ...     def forward(self, x):
    ...         return self.layer(self.layer(x))
    >>> torch.jit.script(Twice(torch.nn.ReLU()))(torch.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """
    from tensorgrad.jit.declared import interface as declared
    from tensorgrad.nn.module import Module

    return declared(obj, Module)


def is_scripting() -> bool:
    """Returns whether the code runs as TorchScript: always False.

    >>> torch.jit.is_scripting()
    False
    """
    return False


def is_tracing() -> bool:
    """Returns whether `torch.jit.trace`, or `torch.onnx.export` with `dynamo=False`, is running the code.

    >>> class Told(torch.nn.Module):
    ...     def forward(self, x):
    ...         print(torch.jit.is_tracing())
    ...         return x + 1
    >>> traced = torch.jit.trace(Told(), torch.ones(1))
    True
    """
    from tensorgrad.system.exporting import is_exporting

    return is_exporting("trace")


def annotate(the_type: Any, the_value: Any) -> Any:
    """Returns the value unchanged.

    >>> torch.jit.annotate(list[int], [])
    []
    """
    return the_value


def isinstance(obj: Any, target_type: Any) -> bool:
    """Python's `isinstance`.

    >>> torch.jit.isinstance(torch.ones(1), torch.Tensor)
    True
    """
    return builtins.isinstance(obj, target_type)


def save(m: Any, f: Any, _extra_files: Any = None) -> None:
    """Writes a module with its program as an archive of TorchScript, which `torch.jit.load` reads here and in PyTorch.

    Args:
        m: What `torch.jit.script`, `torch.jit.trace` or `torch.jit.load` returned.
        f: A path, whose file is replaced once all is written, or an object with `write`.
        _extra_files: Further files for the archive: a dict from names to contents, strings or bytes.

    Raises:
        NotImplementedError: If there is no program; the message says why.

    >>> torch.jit.save(torch.nn.ReLU(), "relu.pt")
    Traceback (most recent call last):
        ...
    NotImplementedError: jit.save: a tensorgrad.nn.activation.ReLU without a program cannot be saved (torch.jit...
    """
    from tensorgrad.jit import write

    write.write(m, f, _extra_files)


def load(f: Any, map_location: Any = None, _extra_files: Any = None, _restore_shapes: bool = False) -> Any:
    """Loads a module that `torch.jit.save` wrote: PyTorch's, scripted or traced, or this one's.

    The archive contains a program, in a subset of Python. It is read as data and run by an interpreter that knows
    PyTorch's operators and nothing else: nothing in the file is executed by Python.

    Args:
        f: A path, or a readable and seekable file.
        map_location: A device, or its name, to put all tensors on.
        _extra_files: A dict. The values of its keys become the contents (bytes) of the archive's files of these names.

    Raises:
        ValueError: If there is no such file.
        RuntimeError: If it is not such an archive, is damaged, or contains what no program of TorchScript does; the
            message names the file of the program and the line.

    >>> torch.jit.load("relu.pt")
    Traceback (most recent call last):
        ...
    ValueError: The provided filename relu.pt does not exist
    """
    from tensorgrad.jit import loading

    return loading.read(f, map_location, _extra_files)


# These need torch.nn, which scripting does not.
_LATER = ("RecursiveScriptModule", "ScriptModule", "TopLevelTracedModule", "TracedModule")
_SCRIPTING = {"ScriptFunction": "tensorgrad.jit.scripting.modules"}


if TYPE_CHECKING:
    from tensorgrad.jit.modules import RecursiveScriptModule, ScriptModule, TopLevelTracedModule, TracedModule
    from tensorgrad.jit.scripting.modules import ScriptFunction

elsewhere(__name__, dict.fromkeys(_LATER, "tensorgrad.jit.modules") | _SCRIPTING)
