"""Neural networks: modules, layers, losses, initial values, and the functions behind them."""

from typing import TYPE_CHECKING, Any

from tensorgrad.nn.parameter import Buffer, Parameter  # isort: skip  (first: the layers are made of it)
from tensorgrad.nn.activation import (
    CELU,
    ELU,
    GELU,
    GLU,
    SELU,
    Hardshrink,
    Hardsigmoid,
    Hardswish,
    Hardtanh,
    LeakyReLU,
    LogSigmoid,
    LogSoftmax,
    Mish,
    PReLU,
    ReLU,
    ReLU6,
    RReLU,
    Sigmoid,
    SiLU,
    Softmax,
    Softmax2d,
    Softmin,
    Softplus,
    Softshrink,
    Softsign,
    Tanh,
    Tanhshrink,
    Threshold,
)
from tensorgrad.nn.attention import MultiheadAttention
from tensorgrad.nn.batchnorm import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
)
from tensorgrad.nn.container import ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential
from tensorgrad.nn.conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from tensorgrad.nn.distance import CosineSimilarity, PairwiseDistance
from tensorgrad.nn.dropout import AlphaDropout, Dropout, Dropout1d, Dropout2d, Dropout3d, FeatureAlphaDropout
from tensorgrad.nn.flatten import ChannelShuffle, Flatten, PixelShuffle, PixelUnshuffle, Unflatten
from tensorgrad.nn.linear import Bilinear, Identity, Linear
from tensorgrad.nn.loss import (
    BCELoss,
    BCEWithLogitsLoss,
    CosineEmbeddingLoss,
    CrossEntropyLoss,
    GaussianNLLLoss,
    HingeEmbeddingLoss,
    HuberLoss,
    KLDivLoss,
    L1Loss,
    MarginRankingLoss,
    MSELoss,
    MultiLabelMarginLoss,
    MultiLabelSoftMarginLoss,
    MultiMarginLoss,
    NLLLoss,
    PoissonNLLLoss,
    SmoothL1Loss,
    SoftMarginLoss,
    TripletMarginLoss,
    TripletMarginWithDistanceLoss,
)
from tensorgrad.nn.module import Module
from tensorgrad.nn.normalization import GroupNorm, LayerNorm, LocalResponseNorm, RMSNorm
from tensorgrad.nn.padding import (
    CircularPad1d,
    CircularPad2d,
    CircularPad3d,
    ConstantPad1d,
    ConstantPad2d,
    ConstantPad3d,
    ReflectionPad1d,
    ReflectionPad2d,
    ReflectionPad3d,
    ReplicationPad1d,
    ReplicationPad2d,
    ReplicationPad3d,
    ZeroPad1d,
    ZeroPad2d,
    ZeroPad3d,
)
from tensorgrad.nn.pooling import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool3d,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
)
from tensorgrad.nn.sparse import Embedding

from tensorgrad.nn import functional, init  # isort: skip


if TYPE_CHECKING:
    from tensorgrad.nn import utils
else:  # so that a misspelt name does not pass for this one

    def __getattr__(name: str) -> Any:
        if name == "utils":  # used by few programs: loaded when it is first asked for
            from importlib import import_module

            return import_module("tensorgrad.nn.utils")
        hint = "" if name.startswith("_") else " (what PyTorch has under this name is not implemented yet)"
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")


__all__ = [name for name, value in globals().items() if isinstance(value, type)] + ["functional", "init", "utils"]
