"""Writes event files that TensorBoard can show. Requires the package `tensorboard`.

Without that package, importing `SummaryWriter` raises ModuleNotFoundError, which programs check for.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorgrad.utils.tensorboard.writer import FileWriter, SummaryWriter
else:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if find_spec("tensorboard") is None:
            from tensorgrad.utils.tensorboard.messages import absent

            raise absent()
        from tensorgrad.utils.tensorboard import writer

        return getattr(writer, name)


__all__ = ["FileWriter", "SummaryWriter"]
