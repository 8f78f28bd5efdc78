"""`torch.utils.cpp_extension.BuildExtension`: setup scripts name it, also those that have nothing to compile.

It builds what does not use PyTorch's headers. Extensions that do are refused where they are described: by
`CppExtension` and `CUDAExtension`.
"""

from __future__ import annotations

from typing import Any

from setuptools.command.build_ext import build_ext  # type: ignore[import-untyped]


class BuildExtension(build_ext):
    """The command `build_ext` of setuptools, which tells sources their module's name as TORCH_EXTENSION_NAME.

    Args:
        use_ninja: accepted for compatibility: setuptools compiles.
        no_python_abi_suffix: whether the names of files do not say for which Python they are.
    """

    @classmethod
    def with_options(cls, **options: Any) -> type[BuildExtension]:
        """Returns a subclass that is made with these options."""

        class WithOptions(cls):  # type: ignore[misc,valid-type]
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **{**kwargs, **options})

        return WithOptions

    def __init__(self, *args: Any, use_ninja: bool = True, no_python_abi_suffix: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.use_ninja, self.no_python_abi_suffix = False, no_python_abi_suffix

    def build_extensions(self) -> None:
        """Compiles the extensions; flags may be given for several compilers, of which the one for C++ is used."""
        for extension in self.extensions:
            flags = extension.extra_compile_args
            flags = flags.get("cxx", []) if isinstance(flags, dict) else flags
            name = extension.name.rpartition(".")[2]
            extension.extra_compile_args = [*flags, f"-DTORCH_EXTENSION_NAME={name}"]
        super().build_extensions()

    def get_ext_filename(self, fullname: str) -> str:
        """Returns the name of the file of an extension."""
        name: str = super().get_ext_filename(fullname)
        parts = name.split(".")
        return ".".join([*parts[:-2], parts[-1]]) if self.no_python_abi_suffix and len(parts) > 2 else name
