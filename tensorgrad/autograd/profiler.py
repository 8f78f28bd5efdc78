"""`torch.autograd.profiler`: its names, from the package tensorgrad/profiler."""

import importlib

from tensorgrad.system.lazy_modules import whole


def __getattr__(name: str):
    legacy = importlib.import_module("tensorgrad.profiler.legacy")
    if name == "__all__" or name in legacy.__all__:
        return getattr(legacy, name)
    from tensorgrad.system.missing_names import no_attribute

    raise no_attribute(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *importlib.import_module("tensorgrad.profiler.legacy").__all__})


whole(__name__)
