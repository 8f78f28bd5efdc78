"""The classes of TorchScript modules. `torch.jit.script` does not use them: it returns its argument."""

from __future__ import annotations

from typing import Any, NoReturn

from tensorgrad.nn.module import Module


class ScriptModule(Module):
    """A module written for TorchScript: an ordinary module, which cannot be saved as a TorchScript file.

    >>> class Double(torch.jit.ScriptModule):
    ...     @torch.jit.script_method
    ...     def forward(self, x):
    ...         return 2 * x
    >>> Double()(torch.ones(2)), isinstance(torch.nn.ReLU(), torch.jit.ScriptModule)
    (tensor([2., 2.]), False)
    """

    @property
    def original_name(self) -> str:
        """The name of the class."""
        return type(self).__name__

    def save(self, f: Any, *args: Any, **options: Any) -> NoReturn:
        """Raises: NotImplementedError. Use `torch.save(module.state_dict(), file)`."""
        from tensorgrad.jit import save

        save(self, f)
        raise AssertionError  # not reached: `save` has raised

    save_to_buffer = _save_for_lite_interpreter = save


class RecursiveScriptModule(ScriptModule):
    """The type of scripted modules in PyTorch.

    >>> isinstance(torch.jit.script(torch.nn.ReLU()), torch.jit.RecursiveScriptModule)
    False
    """


class TracedModule(ScriptModule):
    """The type of submodules of traced modules in PyTorch.

    >>> issubclass(torch.jit.TracedModule, torch.jit.ScriptModule)
    True
    """


class TopLevelTracedModule(TracedModule):
    """The type of traced modules in PyTorch.

    >>> issubclass(torch.jit.TopLevelTracedModule, torch.jit.ScriptModule)
    True
    """
