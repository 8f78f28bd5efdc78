"""Neural networks: modules, layers, losses, initial values, and the functions behind them."""

from typing import Any

from tensorgrad.nn.parameter import Buffer, Parameter  # isort: skip  (first: the layers need it)
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
from tensorgrad.nn.adaptive import AdaptiveLogSoftmaxWithLoss
from tensorgrad.nn.attention import MultiheadAttention
from tensorgrad.nn.batchnorm import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    SyncBatchNorm,
)
from tensorgrad.nn.container import Container, ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential
from tensorgrad.nn.conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from tensorgrad.nn.distance import CosineSimilarity, PairwiseDistance
from tensorgrad.nn.dropout import AlphaDropout, Dropout, Dropout1d, Dropout2d, Dropout3d, FeatureAlphaDropout
from tensorgrad.nn.embedding_bag import EmbeddingBag
from tensorgrad.nn.flatten import ChannelShuffle, Flatten, PixelShuffle, PixelUnshuffle, Unflatten
from tensorgrad.nn.fold import Fold, Unfold
from tensorgrad.nn.linear import Bilinear, Identity, Linear
from tensorgrad.nn.linear_cross_entropy import LinearCrossEntropyLoss, LinearCrossEntropyOptions
from tensorgrad.nn.loss import (
    BCELoss,
    BCEWithLogitsLoss,
    CosineEmbeddingLoss,
    CrossEntropyLoss,
    CTCLoss,
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
    NLLLoss2d,
    PoissonNLLLoss,
    SmoothL1Loss,
    SoftMarginLoss,
    TripletMarginLoss,
    TripletMarginWithDistanceLoss,
)
from tensorgrad.nn.module import Module
from tensorgrad.nn.normalization import CrossMapLRN2d, GroupNorm, LayerNorm, LocalResponseNorm, RMSNorm
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
    FractionalMaxPool2d,
    FractionalMaxPool3d,
    LPPool1d,
    LPPool2d,
    LPPool3d,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
    MaxUnpool1d,
    MaxUnpool2d,
    MaxUnpool3d,
)
from tensorgrad.nn.sparse import Embedding
from tensorgrad.nn.upsampling import Upsample, UpsamplingBilinear2d, UpsamplingNearest2d
from tensorgrad.system.lazy_modules import later, whole

from tensorgrad.nn import functional, init  # isort: skip

for _name in functional._COMPOSITES:
    getattr(functional, _name)
del _name

# Rarely used, so loaded on first access: module -> the names in it.
_LATER = {
    "factory": ("factory_kwargs",),
    "lazy": (
        "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyConv1d", "LazyConv2d", "LazyConv3d",
        "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d", "LazyInstanceNorm1d",
        "LazyInstanceNorm2d", "LazyInstanceNorm3d", "LazyLinear", "UninitializedBuffer", "UninitializedParameter",
    ),
    "parallel": ("DataParallel",),
    "rnn": ("GRU", "LSTM", "RNN", "RNNBase"),
    "rnn_cell": ("GRUCell", "LSTMCell", "RNNCell", "RNNCellBase"),
    "transformer": (
        "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer",
    ),
}  # fmt: skip
_OURS = {"summary": "tensorgrad.viz.summary"}  # not in PyTorch: name -> module
_MODULES = ("common_types", "grad", "modules", "parallel", "utils")


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"tensorgrad.nn.{name}")
    if name in _OURS:
        globals()[name] = getattr(import_module(_OURS[name]), name)
        return globals()[name]
    for module, names in _LATER.items():
        if name in names:
            globals()[name] = getattr(import_module(f"tensorgrad.nn.{module}"), name)
            return globals()[name]
    raise import_module("tensorgrad.system.missing_names").no_attribute(__name__, name)


__all__ = [
    *(name for name, value in globals().items() if isinstance(value, type)),
    *(name for names in _LATER.values() for name in names),
    *_OURS,
    "functional",
    "init",
    "utils",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES, *_OURS})


whole(__name__)
later(__name__, ("grad",))
vars(functional)["grad"] = globals()["grad"]  # PyTorch's has this module, too
