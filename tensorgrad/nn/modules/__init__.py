"""`torch.nn.modules`, the package of PyTorch's layers. Programs import them from its files:

    from torch.nn.modules.linear import Linear
    from torch.nn.modules.batchnorm import _BatchNorm

Each of those files is an alias module here that looks its names up in `tensorgrad.nn`.
"""

from __future__ import annotations

import sys as _sys
from typing import Any as _Any

from tensorgrad import nn as _nn
from tensorgrad.system.lazy_modules import Whole as _Whole
from tensorgrad.system.lazy_modules import loaded as _loaded
from tensorgrad.system.lazy_modules import whole as _whole

# The files, and what `from torch.nn.modules.<file> import *` imports.
_FILES = {
    "activation": """
        Threshold ReLU RReLU Hardtanh ReLU6 Sigmoid Hardsigmoid Tanh SiLU Mish Hardswish ELU CELU SELU GLU GELU
        Hardshrink LeakyReLU LogSigmoid Softplus Softshrink MultiheadAttention PReLU Softsign Tanhshrink Softmin Softmax
        Softmax2d LogSoftmax
    """,
    "adaptive": "AdaptiveLogSoftmaxWithLoss",
    "batchnorm": "BatchNorm1d LazyBatchNorm1d BatchNorm2d LazyBatchNorm2d BatchNorm3d LazyBatchNorm3d SyncBatchNorm",
    "channelshuffle": "ChannelShuffle",
    "container": "Container Sequential ModuleList ModuleDict ParameterList ParameterDict",
    "conv": """
        Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d LazyConv1d LazyConv2d LazyConv3d
        LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d
    """,
    "distance": "PairwiseDistance CosineSimilarity",
    "dropout": "Dropout Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout",
    "flatten": "Flatten Unflatten",
    "fold": "Fold Unfold",
    "instancenorm": """
        InstanceNorm1d InstanceNorm2d InstanceNorm3d LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d
    """,
    "lazy": "LazyModuleMixin",
    "linear": "Bilinear Identity LazyLinear Linear",
    "loss": """
        L1Loss NLLLoss NLLLoss2d PoissonNLLLoss GaussianNLLLoss KLDivLoss MSELoss BCELoss BCEWithLogitsLoss
        HingeEmbeddingLoss MultiLabelMarginLoss SmoothL1Loss HuberLoss SoftMarginLoss CrossEntropyLoss
        LinearCrossEntropyLoss MultiLabelSoftMarginLoss CosineEmbeddingLoss MarginRankingLoss MultiMarginLoss
        TripletMarginLoss TripletMarginWithDistanceLoss CTCLoss
    """,
    "module": """
        register_module_forward_pre_hook register_module_forward_hook register_module_full_backward_pre_hook
        register_module_backward_hook register_module_full_backward_hook register_module_buffer_registration_hook
        register_module_module_registration_hook register_module_parameter_registration_hook Module
    """,
    "normalization": "LocalResponseNorm CrossMapLRN2d LayerNorm GroupNorm RMSNorm",
    "padding": """
        CircularPad1d CircularPad2d CircularPad3d ConstantPad1d ConstantPad2d ConstantPad3d ReflectionPad1d
        ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d ReplicationPad3d ZeroPad1d ZeroPad2d ZeroPad3d
    """,
    "pixelshuffle": "PixelShuffle PixelUnshuffle",
    "pooling": """
        MaxPool1d MaxPool2d MaxPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d AvgPool1d AvgPool2d AvgPool3d
        FractionalMaxPool2d FractionalMaxPool3d LPPool1d LPPool2d LPPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d
        AdaptiveMaxPool3d AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d
    """,
    "rnn": "RNNBase RNN LSTM GRU RNNCellBase RNNCell LSTMCell GRUCell",
    "sparse": "Embedding EmbeddingBag",
    "transformer": "Transformer TransformerEncoder TransformerDecoder TransformerEncoderLayer TransformerDecoderLayer",
    "upsampling": "Upsample UpsamplingNearest2d UpsamplingBilinear2d",
    "utils": "consume_prefix_in_state_dict_if_present",
}  # fmt: skip
# Where to look for names that are not in torch.nn itself.
_SEARCHED = (
    "module", "module_hooks", "module_state", "activation", "adaptive", "attention", "backward_hook", "batchnorm",
    "container", "conv", "dropout", "lazy", "linear", "loss", "normalization", "padding", "parameter", "pooling", "rnn",
    "rnn_cell", "transformer",
)  # fmt: skip
# Names that PyTorch has there -> (file, name) here.
_OTHERS: dict[str, tuple[str, str]] = {
    "NonDynamicallyQuantizableLinear": ("attention", "NonDynamicallyQuantizableLinear"),
    "consume_prefix_in_state_dict_if_present": ("module_state", "consume_prefix_in_state_dict_if_present"),
    "_BatchNorm": ("batchnorm", "_BatchNorm"), "_NormBase": ("batchnorm", "_NormBase"),
    "_ConvNd": ("conv", "_ConvNd"), "_EXTRA_STATE_KEY_SUFFIX": ("module_state", "EXTRA_STATE"),
    "_Loss": ("loss", "_Loss"),
    "_WeightedLoss": ("loss", "_WeightedLoss"),
    **{
        name: ("modules.tuples", name)
        for name in (
            "_ntuple", "_single", "_pair", "_triple", "_quadruple", "_reverse_repeat_tuple", "_list_with_default",
        )
    },
}  # fmt: skip


def _find(name: str) -> _Any:
    import importlib

    if hasattr(_nn, name):
        return getattr(_nn, name)
    if name in _OTHERS:
        file, other = _OTHERS[name]
        return getattr(importlib.import_module(f"tensorgrad.nn.{file}"), other)
    if name.startswith("_global_"):  # the hooks common to all modules
        from tensorgrad.nn import module_hooks

        for kind in ("parameter", "buffer", "module"):
            if name == f"_global_{kind}_registration_hooks":
                return getattr(module_hooks, f"on_{kind}")
        return getattr(module_hooks.GLOBAL_HOOKS, name.removeprefix("_global"))
    for file in _SEARCHED:
        found = getattr(importlib.import_module(f"tensorgrad.nn.{file}"), name, None)
        if found is not None:
            return found
    raise importlib.import_module("tensorgrad.system.missing_names").no_attribute(__name__, name)


class _AliasModule(_Whole):
    """A file of PyTorch's, whose names are looked up when they are used.

    The hooks common to all modules, which are variables there, can be set through it.
    """

    def __init__(self, file: str) -> None:
        super().__init__(f"{__name__}.{file}", f"`torch.nn.modules.{file}`: see `tensorgrad.nn`.")
        own, names = _loaded(self), _FILES[file].split()

        def get(name: str) -> _Any:
            found = _find(name)
            return own.setdefault(name, found) if name in names else found

        own.update(__all__=names, __getattr__=get, __dir__=lambda: sorted({*own, *names}))

    def __setattr__(self, name: str, value: _Any) -> None:
        from tensorgrad.nn.module_hooks import GLOBAL_HOOKS

        if name.startswith("_global_") and hasattr(GLOBAL_HOOKS, name.removeprefix("_global")):
            setattr(GLOBAL_HOOKS, name.removeprefix("_global"), value)
        else:
            super().__setattr__(name, value)


for _file in _FILES:
    _alias = _AliasModule(_file)
    _sys.modules[_alias.__name__] = globals()[_file] = _alias


def __getattr__(name: str) -> _Any:
    return _find(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(_nn)})


_whole(__name__)
