"""Values of every public class that a program may save: what `test_pickles.py` writes and reads.

Each is made by a function of the library, `tensorgrad` or `torch`.
"""

from __future__ import annotations

import functools
from typing import Any


def _module(name: str, *args: Any, **keywords: Any):
    return lambda torch: getattr(torch.nn, name)(*args, **keywords)


def _parameters(torch):
    return [torch.nn.Parameter(torch.ones(2, 3))]


def _optimizer(name: str):
    def make(torch):
        optimizer = getattr(torch.optim, name)(_parameters(torch), lr=0.1)
        optimizer.param_groups[0]["params"][0].grad = torch.ones(2, 3)
        optimizer.step(*([lambda: torch.tensor(1.0)] if name == "LBFGS" else []))
        return optimizer

    return make


def _scheduler(name: str, *args: Any, **keywords: Any):
    return lambda torch: getattr(torch.optim.lr_scheduler, name)(
        torch.optim.SGD(_parameters(torch), lr=0.1), *args, **keywords
    )


def _several(torch, kind: str):
    optimizer, s = torch.optim.SGD(_parameters(torch), lr=0.1), torch.optim.lr_scheduler
    steps = [s.StepLR(optimizer, 2), s.ExponentialLR(optimizer, 0.9)]
    return s.SequentialLR(optimizer, steps, [3]) if kind == "SequentialLR" else s.ChainedScheduler(steps)


def _hooked(torch):
    layer = torch.nn.Linear(2, 3)
    layer.register_forward_hook(print)
    layer.register_forward_pre_hook(print, with_kwargs=True)
    layer.register_full_backward_hook(print)
    layer.register_state_dict_pre_hook(print)
    layer.register_load_state_dict_pre_hook(print)
    return layer


def _pruned(torch):
    from importlib import import_module

    return import_module(f"{torch.__name__}.nn.utils.prune").ln_structured(torch.nn.Linear(2, 3), "weight", 0.5, 2, 0)


def _averaged(torch):
    return torch.optim.swa_utils.AveragedModel(torch.nn.Linear(2, 3))


def _distribution(name: str, *shapes: Any):
    return lambda torch: getattr(torch.distributions, name)(*(torch.full(s, 0.5) for s in shapes))


OPTIMIZERS = [
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "ASGD",
    "LBFGS",
    "NAdam",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SGD",
]
SCHEDULERS = [
    ("ConstantLR",), ("CosineAnnealingLR", 4), ("CosineAnnealingWarmRestarts", 4), ("CyclicLR", 0.1, 0.2),
    ("ExponentialLR", 0.9), ("LambdaLR", float), ("LinearLR",), ("MultiStepLR", [2, 4]),
    ("MultiplicativeLR", float), ("OneCycleLR", 0.1, 10), ("PolynomialLR",), ("ReduceLROnPlateau",), ("StepLR", 2),
]  # fmt: skip
DISTRIBUTIONS = [
    ("Bernoulli", (2,)), ("Beta", (2,), (2,)), ("Categorical", (3,)), ("Cauchy", (2,), (2,)),
    ("Chi2", (2,)), ("ContinuousBernoulli", (2,)), ("Dirichlet", (3,)), ("Exponential", (2,)),
    ("FisherSnedecor", (2,), (2,)), ("Gamma", (2,), (2,)), ("GeneralizedPareto", (2,), (2,), (2,)), ("Geometric", (2,)),
    ("Gumbel", (2,), (2,)), ("HalfCauchy", (2,)), ("HalfNormal", (2,)), ("InverseGamma", (2,), (2,)),
    ("Kumaraswamy", (2,), (2,)), ("Laplace", (2,), (2,)), ("LogNormal", (2,), (2,)), ("LogisticNormal", (2,), (2,)),
    ("NegativeBinomial", (2,), (2,)), ("Normal", (2,), (2,)), ("OneHotCategorical", (3,)), ("Pareto", (2,), (2,)),
    ("Poisson", (2,)), ("RelaxedBernoulli", (2,), (2,)), ("StudentT", (2,), (2,), (2,)), ("VonMises", (2,), (2,)),
    ("Weibull", (2,), (2,)),
]  # fmt: skip
VALUES: dict[str, Any] = {
    **{f"optim.{name}": _optimizer(name) for name in OPTIMIZERS},
    **{f"lr_scheduler.{name}": _scheduler(name, *args) for name, *args in SCHEDULERS},
    **{f"lr_scheduler.{n}": functools.partial(_several, kind=n) for n in ("SequentialLR", "ChainedScheduler")},
    **{f"distributions.{name}": _distribution(name, *shapes) for name, *shapes in DISTRIBUTIONS},
    "distributions.Binomial": lambda torch: torch.distributions.Binomial(3, torch.full((2,), 0.5)),
    "distributions.Independent": lambda torch: torch.distributions.Independent(
        torch.distributions.Normal(torch.zeros(2), torch.ones(2)), 1
    ),
    "distributions.TransformedDistribution": lambda torch: torch.distributions.TransformedDistribution(
        torch.distributions.Normal(torch.zeros(2), torch.ones(2)),
        [torch.distributions.AffineTransform(1.0, 2.0), torch.distributions.ExpTransform()],
    ),
    "tensor": lambda torch: torch.arange(6.0).reshape(2, 3).t(),
    "tensor with an attribute": lambda torch: _with_attribute(torch.ones(2)),
    "parameter": lambda torch: torch.nn.Parameter(torch.ones(2)),
    "buffer": lambda torch: torch.nn.Buffer(torch.ones(2)),
    "generator": lambda torch: torch.Generator().manual_seed(3),
    "packed": lambda torch: torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)]),
    "size": lambda torch: torch.Size([1, 2]),
    "dtype": lambda torch: torch.float32,
    "device": lambda torch: torch.device("cpu"),
    "class": lambda torch: torch.nn.Linear,
    "function": lambda torch: torch.nn.functional.relu,
    "collate": lambda torch: torch.utils.data.default_collate,
    "dataset": lambda torch: torch.utils.data.TensorDataset(torch.ones(3)),
    "loader": lambda torch: torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(3)), batch_size=2),
    "scaler": lambda torch: torch.amp.GradScaler("cpu"),
    "hooked": _hooked,
    "pruned": _pruned,
    "averaged": _averaged,
    "weight_norm": lambda torch: torch.nn.utils.weight_norm(torch.nn.Linear(2, 3)),
    "spectral_norm": lambda torch: torch.nn.utils.spectral_norm(torch.nn.Linear(2, 3)),
    "ModuleList": lambda torch: torch.nn.ModuleList([torch.nn.ReLU(), torch.nn.Linear(2, 3)]),
    "ModuleDict": lambda torch: torch.nn.ModuleDict({"a": torch.nn.ReLU()}),
    "ParameterList": lambda torch: torch.nn.ParameterList(_parameters(torch)),
    "ParameterDict": lambda torch: torch.nn.ParameterDict({"a": _parameters(torch)[0]}),
    "Sequential": lambda torch: torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3), torch.nn.ReLU()),
}


def _with_attribute(tensor):
    tensor.label = "mine"
    return tensor


# The modules, and what to call them with: shapes of random tensors.
MODULES: list[tuple] = [
    ("Linear", (2, 3), {}, [(4, 2)]), ("Bilinear", (2, 3, 4), {}, [(5, 2), (5, 3)]), ("Identity", (), {}, [(2,)]),
    ("Conv1d", (2, 3, 3), {"padding": "same"}, [(1, 2, 8)]),
    ("Conv2d", (2, 4, 3), {"padding": 1, "padding_mode": "reflect", "groups": 2}, [(1, 2, 6, 6)]),
    ("Conv3d", (1, 2, 2), {"bias": False}, [(1, 1, 3, 4, 5)]),
    ("ConvTranspose1d", (2, 3, 3), {}, [(1, 2, 5)]),
    ("ConvTranspose2d", (2, 3, 3), {"stride": 2, "output_padding": 1}, [(1, 2, 4, 4)]),
    ("ConvTranspose3d", (1, 2, 2), {}, [(1, 1, 3, 3, 3)]),
    ("BatchNorm1d", (3,), {}, [(4, 3)]), ("BatchNorm2d", (3,), {"affine": False}, [(2, 3, 2, 2)]),
    ("BatchNorm3d", (2,), {"track_running_stats": False}, [(2, 2, 2, 2, 2)]), ("SyncBatchNorm", (3,), {}, None),
    ("InstanceNorm1d", (3,), {"affine": True}, [(2, 3, 4)]), ("InstanceNorm2d", (3,), {}, [(2, 3, 4, 4)]),
    ("InstanceNorm3d", (3,), {}, [(2, 3, 2, 2, 2)]),
    ("LayerNorm", (3,), {}, [(2, 3)]), ("GroupNorm", (2, 4), {}, [(2, 4, 3)]), ("RMSNorm", (3,), {}, [(2, 3)]),
    ("LocalResponseNorm", (2,), {}, [(2, 4, 3)]), ("CrossMapLRN2d", (2,), {}, None),
    *((name, (), {}, [(2, 3)]) for name in (
        "CELU", "ELU", "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU", "LogSigmoid",
        "Mish", "PReLU", "RReLU", "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid", "Softplus", "Softshrink", "Softsign",
        "Tanh", "Tanhshrink", "Dropout", "AlphaDropout", "FeatureAlphaDropout",
    ) if name != "GLU"),
    ("GLU", (), {}, [(2, 4)]), ("Softmax", (1,), {}, [(2, 3)]), ("Softmin", (1,), {}, [(2, 3)]),
    ("LogSoftmax", (1,), {}, [(2, 3)]), ("Softmax2d", (), {}, [(1, 2, 3, 3)]), ("Threshold", (0.1, 2.0), {}, [(2, 3)]),
    ("Dropout1d", (), {}, [(2, 3, 4)]), ("Dropout2d", (), {}, [(2, 3, 4, 4)]), ("Dropout3d", (), {}, [(2, 3, 4, 4, 4)]),
    ("AdaptiveAvgPool1d", (2,), {}, [(1, 2, 5)]), ("AdaptiveAvgPool2d", (2,), {}, [(1, 2, 5, 5)]),
    ("AdaptiveAvgPool3d", (2,), {}, [(1, 2, 4, 4, 4)]), ("AdaptiveMaxPool1d", (2,), {}, [(1, 2, 5)]),
    ("AdaptiveMaxPool2d", (2,), {}, [(1, 2, 5, 5)]), ("AdaptiveMaxPool3d", (2,), {}, [(1, 2, 4, 4, 4)]),
    ("AvgPool1d", (2,), {}, [(1, 2, 6)]), ("AvgPool2d", (2,), {}, [(1, 2, 6, 6)]),
    ("AvgPool3d", (2,), {}, [(1, 2, 4, 4, 4)]), ("MaxPool1d", (2,), {}, [(1, 2, 6)]),
    ("MaxPool2d", (2,), {}, [(1, 2, 6, 6)]),
    ("MaxPool3d", (2,), {}, [(1, 2, 4, 4, 4)]), ("LPPool1d", (2, 2), {}, [(1, 2, 6)]),
    ("LPPool2d", (2, 2), {}, [(1, 2, 6, 6)]), ("LPPool3d", (2, 2), {}, [(1, 2, 4, 4, 4)]),
    ("FractionalMaxPool2d", (2, 2), {}, None), ("FractionalMaxPool3d", (2, 2), {}, None),
    ("MaxUnpool1d", (2,), {}, None), ("MaxUnpool2d", (2,), {}, None), ("MaxUnpool3d", (2,), {}, None),
    *((f"{kind}Pad{n}d", (1,), {}, [(1, 2, *(4,) * n)])
      for kind in ("Circular", "Reflection", "Replication", "Zero") for n in (1, 2, 3)),
    *((f"ConstantPad{n}d", (1, 0.5), {}, [(1, 2, *(4,) * n)]) for n in (1, 2, 3)),
    ("Flatten", (), {}, [(2, 3, 4)]), ("Unflatten", (1, (2, 2)), {}, [(2, 4)]), ("Fold", ((4, 4), 2), {}, [(1, 8, 9)]),
    ("Unfold", (2,), {}, [(1, 2, 4, 4)]), ("ChannelShuffle", (2,), {}, [(1, 4, 2, 2)]),
    ("PixelShuffle", (2,), {}, [(1, 4, 2, 2)]), ("PixelUnshuffle", (2,), {}, [(1, 1, 4, 4)]),
    ("Upsample", (), {"scale_factor": 2}, [(1, 2, 3)]),
    ("UpsamplingNearest2d", (), {"scale_factor": 2}, [(1, 2, 3, 3)]),
    ("UpsamplingBilinear2d", (), {"scale_factor": 2}, [(1, 2, 3, 3)]),
    ("CosineSimilarity", (), {}, [(2, 3), (2, 3)]), ("PairwiseDistance", (), {}, [(2, 3), (2, 3)]),
    ("Embedding", (5, 3), {"padding_idx": 0}, None), ("EmbeddingBag", (5, 3), {"mode": "sum"}, None),
    ("AdaptiveLogSoftmaxWithLoss", (8, 10, [3, 6]), {}, None),
    ("RNN", (2, 3), {"nonlinearity": "relu"}, [(4, 1, 2)]),
    ("LSTM", (2, 3), {"num_layers": 2, "proj_size": 2}, [(4, 1, 2)]),
    ("GRU", (2, 3), {"bidirectional": True, "batch_first": True}, [(1, 4, 2)]), ("RNNCell", (2, 3), {}, [(4, 2)]),
    ("LSTMCell", (2, 3), {}, [(4, 2)]), ("GRUCell", (2, 3), {}, [(4, 2)]),
    ("MultiheadAttention", (4, 2), {}, [(3, 1, 4), (3, 1, 4), (3, 1, 4)]),
    ("MultiheadAttention", (4, 2), {"kdim": 3, "vdim": 5}, [(3, 1, 4), (3, 1, 3), (3, 1, 5)]),
    ("TransformerEncoderLayer", (4, 2, 8), {"dropout": 0.0}, [(3, 1, 4)]),
    ("TransformerDecoderLayer", (4, 2, 8), {"dropout": 0.0, "activation": "gelu"}, [(3, 1, 4), (3, 1, 4)]),
    ("Transformer", (4, 2, 1, 1, 8), {"dropout": 0.0}, [(3, 1, 4), (2, 1, 4)]),
    ("LazyLinear", (3,), {}, None), ("LazyConv1d", (3, 2), {}, None), ("LazyConv2d", (3, 2), {}, None),
    ("LazyConv3d", (3, 2), {}, None), ("LazyConvTranspose1d", (3, 2), {}, None),
    ("LazyConvTranspose2d", (3, 2), {}, None), ("LazyConvTranspose3d", (3, 2), {}, None),
    ("LazyBatchNorm1d", (), {}, None), ("LazyBatchNorm2d", (), {}, None), ("LazyBatchNorm3d", (), {}, None),
    ("LazyInstanceNorm1d", (), {}, None), ("LazyInstanceNorm2d", (), {}, None), ("LazyInstanceNorm3d", (), {}, None),
    *((name, (), {}, [(2, 3), (2, 3)]) for name in (
        "BCEWithLogitsLoss", "HuberLoss", "KLDivLoss", "L1Loss", "MSELoss", "SmoothL1Loss", "SoftMarginLoss",
        "CrossEntropyLoss", "PoissonNLLLoss", "MultiLabelSoftMarginLoss", "HingeEmbeddingLoss",
    )),
    *((name, (), {}, None) for name in (
        "BCELoss", "CTCLoss", "CosineEmbeddingLoss", "GaussianNLLLoss", "MarginRankingLoss", "MultiLabelMarginLoss",
        "MultiMarginLoss", "NLLLoss", "NLLLoss2d", "TripletMarginLoss", "TripletMarginWithDistanceLoss",
    )),
    ("LinearCrossEntropyLoss", (3, 4), {}, None),
    ("ModuleList", (), {}, None), ("ModuleDict", (), {}, None), ("ParameterList", (), {}, None),
    ("ParameterDict", (), {}, None), ("Sequential", (), {}, None), ("Module", (), {}, None),
    ("Container", (), {}, None), ("DataParallel", None, {}, None),
]  # fmt: skip
