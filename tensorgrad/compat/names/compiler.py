"""`torch.compile` and `torch.compiler`: functions that are run by plans (tensorgrad/capture)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorgrad.system.registered import COMPILE_MODULE


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = "inductor",
    mode: str | None = None,
    options: dict | None = None,
    disable: bool = False,
) -> Any:
    """Returns a function or module that does the same, with less of Python between kernels where that is possible.

    The first calls run as ever, while what they do is recorded. Once two have done the same, a plan runs instead: the
    kernels alone, in the same order, so that no bit changes. No compiler is needed. Inference, and whole training steps
    with `backward()` and `optimizer.step()` in them, become plans; a forward pass whose result is differentiated
    outside, and what reads values or changes the state of Python, runs as it is. See docs/compile.md in the repository.

    Args:
        model: the function or module; without one, a decorator is returned.
        fullgraph: raises an error where a function cannot be one plan because of what it does besides computing.
        dynamic: accepted for compatibility: there is a plan for each shape, up to eight.
        backend: "tensorgrad" ("inductor" is the same), "eager" to run as ever, or a function that takes an
            `fx.GraphModule` and example inputs, and returns what runs in the place of the plan.
        mode: one of PyTorch's; all are the same here.
        options: accepted for compatibility.
        disable: returns `model` itself.

    Raises:
        RuntimeError: for a mode or backend that does not exist.

    >>> @torch.compile
    ... def double(x):
    ...     return 2 * x
    >>> double(torch.ones(2))
    tensor([2., 2.])
    """
    from tensorgrad.capture.compiled import compiled

    if model is None:
        return lambda function: compiled(function, fullgraph, dynamic, backend, mode, options, disable)
    return compiled(model, fullgraph, dynamic, backend, mode, options, disable)


def compile_module(module: Any, *args: Any, **options: Any) -> None:
    """What `module.compile()` does.

    >>> layer = torch.nn.Linear(2, 2)
    >>> torch.compiler.compile_module(layer)
    >>> layer(torch.ones(1, 2)).shape
    torch.Size([1, 2])
    """
    from tensorgrad.capture.compiled import compile_module

    compile_module(module, *args, **options)


COMPILE_MODULE[:] = [compile_module]


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None, **options: Any) -> Any:
    """Returns a function that is never part of a plan, or a decorator that does. Regions that call it run as they are.

    >>> @torch.compiler.disable
    ... def double(x):
    ...     return 2 * x
    >>> double(torch.ones(2))
    tensor([2., 2.])
    """
    from tensorgrad.capture.compiled import uncompiled
    from tensorgrad.nn import Module

    def decorated(function: Any) -> Any:
        if isinstance(function, Module):
            function.forward = uncompiled(function.forward)
            return function
        return function if isinstance(function, type) else uncompiled(function)

    return decorated if fn is None else decorated(fn)


def allow_in_graph(fn: Callable) -> Callable:
    """Returns the function unchanged: whatever a function does is recorded.

    >>> def double(x):
    ...     return 2 * x
    >>> torch.compiler.allow_in_graph(double)(torch.ones(2))
    tensor([2., 2.])
    """
    return fn


assume_constant_result = allow_in_graph


def is_exporting() -> bool:
    """Returns whether `torch.export`, or `torch.onnx.export` with `dynamo=True`, is running the code.

    >>> class Told(torch.nn.Module):
    ...     def forward(self, x):
    ...         print(torch.compiler.is_exporting())
    ...         return x + 1
    >>> program = torch.export.export(Told(), (torch.ones(1),))
    True
    >>> torch.compiler.is_exporting()
    False
    """
    from tensorgrad.system.exporting import is_exporting

    return is_exporting("export")


def is_compiling() -> bool:
    """Returns whether the code is being exported, as `is_exporting` does. While `torch.compile` records it is False:
    the program runs as ever.

    >>> torch.compiler.is_compiling()
    False
    """
    return is_exporting()


def is_dynamo_compiling() -> bool:
    """Returns False: nothing here compiles Python's bytecode.

    >>> torch.compiler.is_dynamo_compiling()
    False
    """
    return False


def reset() -> None:
    """Forgets all plans.

    >>> torch.compiler.reset()
    """
    from tensorgrad.capture.compiled import reset

    reset()


def set_stance(stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None) -> Any:
    """Says how compiled functions run: "force_eager" as they are. As a context, it ends with the block.

    >>> double = torch.compile(lambda x: 2 * x)
    >>> with torch.compiler.set_stance("force_eager"):
    ...     double(torch.ones(2))
    tensor([2., 2.])
    """
    from tensorgrad.capture.compiled import set_stance

    return set_stance(stance)


def cudagraph_mark_step_begin() -> None:
    """Accepted for compatibility: no CUDA graphs are recorded.

    >>> torch.compiler.cudagraph_mark_step_begin()
    """


def list_backends(exclude_tags: Any = ()) -> list[str]:
    """Returns the names that `backend=` takes.

    >>> torch.compiler.list_backends()
    ['aot_eager', 'cudagraphs', 'eager', 'inductor', 'tensorgrad']
    """
    return ["aot_eager", "cudagraphs", "eager", "inductor", "tensorgrad"]


class ScriptModule:
    """PyTorch's class of compiled modules. There are none here; programs ask whether something is one.

    Raises: NotImplementedError. It cannot be made.

    >>> isinstance(torch.nn.ReLU(), torch.ScriptModule)
    False
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("torch.ScriptModule: there are no compiled modules; use torch.jit.ScriptModule")
