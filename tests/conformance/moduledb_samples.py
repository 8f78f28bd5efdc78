"""Inputs for the modules that PyTorch's test database has no record of.

For each class a list of (arguments, keyword arguments, inputs): the first two make the module, a list among the inputs
is the shape of a tensor of random numbers, and None in their place means that the module is not called.
"""

from __future__ import annotations

import torch

_IMAGE = [2, 3, 4, 5]
_LABELS = torch.tensor([0, 4, 1, 2, 3])
_BAGS = torch.tensor([[1, 2, 0], [3, 3, 1]])

Sample = tuple[tuple, dict, tuple | None]


def _places(shape: list[int], n: int) -> torch.Tensor:
    """Indices such as a max pooling of windows of size 2 gives, for its result's shape."""
    grid = torch.arange(2**n * torch.Size(shape[2:]).numel()).reshape([2 * s for s in shape[2:]])
    return grid[(slice(None, None, 2),) * n].expand(shape).contiguous()


def _unpooling(shape: list[int]) -> list[Sample]:
    indices = _places(shape, len(shape) - 2)
    return [((2,), {}, (shape, indices)), ((2,), {"stride": 2, "padding": 0}, (shape[1:], indices[0]))]


def _dropout(*shapes: list[int]) -> list[Sample]:
    return [((p,), {}, (shape,)) for shape in shapes for p in (0.5, 0.0, 1.0)] + [((), {"inplace": False}, None)]


def _lazy_norm(*shapes: list[int]) -> list[Sample]:
    options = ({}, {"affine": False}, {"track_running_stats": False}, {"bias": False, "momentum": None})
    return [((), o, (shape,)) for shape in shapes for o in options]


def _upsampling(*names: str) -> list[Sample]:
    return [((), {"scale_factor": 2}, (_IMAGE,)), (((7, 9),), {}, (_IMAGE,))]


SAMPLES: dict[str, list[Sample]] = {
    "nn.AdaptiveLogSoftmaxWithLoss": [((8, 5, [2, 3]), {}, ([5, 8], _LABELS)),
                                      ((8, 5, [3]), {"head_bias": True, "div_value": 2.0}, ([8], _LABELS[1]))],
    "nn.AlphaDropout": _dropout([40, 50], [7]),
    "nn.ChannelShuffle": [((3,), {}, ([2, 6, 4, 4],))],
    "nn.Container": [((), {"a": torch.nn.ReLU(), "b": torch.nn.Tanh()}, None)],
    "nn.CosineSimilarity": [((), {}, ([4, 3], [4, 3])), ((), {"dim": 0, "eps": 1e-3}, ([4, 3], [4, 3]))],
    "nn.CrossMapLRN2d": [((2,), {}, ([2, 5, 3, 3],)), ((3, 1e-2, 0.5, 2.0), {}, ([2, 5, 3, 3],))],
    "nn.Dropout": _dropout([40, 50], [3, 4, 5]),
    "nn.Dropout1d": _dropout([4, 5, 6], [5, 6]),
    "nn.Dropout2d": _dropout([4, 5, 6, 2]),
    "nn.Dropout3d": _dropout([4, 5, 2, 3, 2], [5, 2, 3, 2]),
    "nn.EmbeddingBag": [((5, 3), {}, (_BAGS,)), ((5, 3), {"mode": "sum", "padding_idx": 1}, (_BAGS,)),
                        ((5, 3), {"mode": "max", "include_last_offset": True},
                         (_BAGS.flatten(), torch.tensor([0, 2, 6])))],
    "nn.FeatureAlphaDropout": _dropout([4, 5, 6, 2]),
    "nn.Flatten": [((), {}, (_IMAGE,)), ((0, -2), {}, (_IMAGE,))],
    "nn.Fold": [(((4, 5), 2), {}, ([2, 12, 12],)), (((4, 5), (2, 3)), {"padding": 1, "stride": 2}, ([2, 12, 9],))],
    "nn.Hardsigmoid": [((), {}, (_IMAGE,)), ((), {"inplace": False}, ([3],))],
    "nn.Identity": [((1, 2), {"a": 3}, (_IMAGE,))],
    "nn.LazyBatchNorm1d": _lazy_norm([4, 3], [4, 3, 5]),
    "nn.LazyBatchNorm2d": _lazy_norm(_IMAGE),
    "nn.LazyBatchNorm3d": _lazy_norm([2, 3, 4, 5, 2]),
    "nn.LazyInstanceNorm1d": _lazy_norm([4, 3, 5]),
    "nn.LazyInstanceNorm2d": _lazy_norm(_IMAGE),
    "nn.LazyInstanceNorm3d": _lazy_norm([2, 3, 4, 5, 2]),
    "nn.LazyLinear": [((5,), {}, ([4, 3],)), ((5, False), {}, ([3],))],
    "nn.MaxUnpool1d": _unpooling([2, 3, 4]),
    "nn.MaxUnpool2d": _unpooling([2, 3, 4, 5]),
    "nn.MaxUnpool3d": _unpooling([2, 3, 2, 3, 2]),
    "nn.ModuleDict": [(({"a": torch.nn.ReLU(), "b": torch.nn.Tanh()},), {}, None), ((), {}, None)],
    "nn.ModuleList": [(([torch.nn.ReLU(), torch.nn.ReLU(), torch.nn.Tanh()],), {}, None), ((), {}, None)],
    "nn.PairwiseDistance": [((), {}, ([4, 3], [4, 3])), ((1.0, 1e-3, True), {}, ([4, 3], [4, 3]))],
    "nn.ParameterDict": [(({"b": torch.ones(2), "a": torch.ones(3)},), {}, None), ((), {}, None)],
    "nn.ParameterList": [(([torch.ones(2), torch.ones(3)],), {}, None), ((), {}, None)],
    "nn.PixelShuffle": [((2,), {}, ([2, 8, 3, 4],))],
    "nn.PixelUnshuffle": [((2,), {}, ([2, 2, 6, 4],))],
    "nn.RReLU": [((), {}, (_IMAGE,)), ((0.2, 0.5), {}, ([3],))],
    "nn.RNNBase": [(("LSTM", 3, 4), {"num_layers": 2, "bidirectional": True}, None),
                   (("RNN_TANH", 3, 4), {"bias": False}, None)],
    "nn.RNNCellBase": [((3, 4, True, 2), {}, None), ((3, 4, False, 4), {}, None)],
    "nn.Sequential": [((torch.nn.ReLU(), torch.nn.Tanh()), {}, (_IMAGE,)), ((), {}, (_IMAGE,))],
    "nn.SyncBatchNorm": [((3,), {}, ([4, 3],)), ((3,), {"momentum": None}, (_IMAGE,)),
                         ((3,), {"affine": False, "track_running_stats": False}, (_IMAGE,))],
    "nn.TransformerDecoder": [((torch.nn.TransformerDecoderLayer(4, 2, 8, 0.0), 2), {}, ([3, 2, 4], [5, 2, 4])),
                              ((torch.nn.TransformerDecoderLayer(4, 2, 8, 0.2, "gelu", norm_first=True), 2), {},
                               ([3, 2, 4], [5, 2, 4]))],
    "nn.TripletMarginLoss": [((), {}, ([4, 3], [4, 3], [4, 3])),
                             ((2.0, 1.0), {"swap": True, "reduction": "none"}, ([4, 3], [4, 3], [4, 3]))],
    "nn.TripletMarginWithDistanceLoss": [((), {}, ([4, 3], [4, 3], [4, 3])),
                                         ((), {"swap": True, "margin": 0.5, "reduction": "sum"},
                                          ([4, 3], [4, 3], [4, 3]))],
    "nn.Unflatten": [((1, (3, 1)), {}, (_IMAGE,)), ((-1, torch.Size([5, 1])), {}, (_IMAGE,))],
    "nn.Unfold": [((2,), {}, (_IMAGE,)), (((2, 3),), {"dilation": 1, "padding": 1, "stride": 2}, (_IMAGE,))],
    "nn.Upsample": [*_upsampling(), ((), {"scale_factor": (1.5, 2), "mode": "bilinear"}, (_IMAGE,)),
                    ((), {"size": 9, "mode": "linear", "align_corners": True}, ([2, 3, 4],)),
                    ((), {"scale_factor": 2, "mode": "bicubic"}, (_IMAGE,))],
    "nn.UpsamplingBilinear2d": _upsampling(),
    "nn.UpsamplingNearest2d": _upsampling(),
}  # fmt: skip
