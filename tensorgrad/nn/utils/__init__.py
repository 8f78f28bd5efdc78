"""Utilities for parameters: gradient clipping, conversion to a vector, normalization, pruning, parametrization."""

from typing import TYPE_CHECKING, Any

from tensorgrad.nn.utils.clip_grad import (
    clip_grad_norm,
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)
from tensorgrad.nn.utils.convert_parameters import parameters_to_vector, vector_to_parameters

# Two functions with the names of their files. Imported now, as a later import of the files would replace them.
from tensorgrad.nn.utils.spectral_norm import remove_spectral_norm, spectral_norm
from tensorgrad.nn.utils.weight_norm import remove_weight_norm, weight_norm
from tensorgrad.system.lazy_modules import whole as _whole

# Rarely used, so loaded on first access: module -> the names in it.
_LATER: dict[str, tuple[str, ...]] = {
    "fusion": ("fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"),
    "init": ("skip_init",),
    "memory_format": ("convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"),
    "parametrizations": (),
    "parametrize": (),
    "prune": (),
    "rnn": (),
    "stateless": (),
}

if TYPE_CHECKING:
    from tensorgrad.nn.utils import parametrizations, parametrize, prune, rnn, stateless
    from tensorgrad.nn.utils.fusion import (
        fuse_conv_bn_eval,
        fuse_conv_bn_weights,
        fuse_linear_bn_eval,
        fuse_linear_bn_weights,
    )
    from tensorgrad.nn.utils.init import skip_init
    from tensorgrad.nn.utils.memory_format import (
        convert_conv2d_weight_memory_format,
        convert_conv3d_weight_memory_format,
    )
else:

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name in _LATER:
            return import_module(f"{__name__}.{name}")
        for module, names in _LATER.items():
            if name in names:
                globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
                return globals()[name]
        raise import_module("tensorgrad.system.missing_names").no_attribute(__name__, name)


__all__ = [
    "clip_grad_norm",
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "convert_conv2d_weight_memory_format",
    "convert_conv3d_weight_memory_format",
    "fuse_conv_bn_eval",
    "fuse_conv_bn_weights",
    "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
    "get_total_norm",
    "parameters_to_vector",
    "parametrizations",
    "parametrize",
    "remove_spectral_norm",
    "remove_weight_norm",
    "rnn",
    "skip_init",
    "spectral_norm",
    "stateless",
    "vector_to_parameters",
    "weight_norm",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_LATER})


_whole(__name__)
