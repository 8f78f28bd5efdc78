"""`torch.nn.functional`: the functions behind the layers.

They are declared with the ops (`tensorgrad/ops/`); this module only gathers them under PyTorch's name.
"""

from __future__ import annotations

from tensorgrad.ops.kinds import FUNCTIONAL as _FUNCTIONAL
from tensorgrad.ops.kinds import FUNCTIONS as _FUNCTIONS

globals().update(_FUNCTIONAL)

# Functions of `torch` that PyTorch offers here under the same name.
for _name in (
    "bilinear", "channel_shuffle", "conv_tbc", "cosine_similarity", "hardshrink", "native_channel_shuffle", "one_hot",
    "pairwise_distance", "pdist", "pixel_shuffle", "pixel_unshuffle", "prelu", "sigmoid", "tanh",
):  # fmt: skip
    if _name not in _FUNCTIONAL and _name in _FUNCTIONS:
        globals()[_name] = _FUNCTIONS[_name]


def __getattr__(name: str):
    if name == "multi_head_attention_forward":  # a composite of layers, loaded when first asked for
        from tensorgrad.nn.functional_attention import multi_head_attention_forward

        globals()[name] = multi_head_attention_forward
        return multi_head_attention_forward
    raise AttributeError(f"module 'tensorgrad.nn.functional' has no attribute {name!r}")


def __dir__():
    return sorted(n for n in globals() if not n.startswith("_"))
