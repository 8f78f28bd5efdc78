"""What is used to quantize a module: an observer or fake quantization for its results, and one for its weights."""

from __future__ import annotations

from typing import Any, NamedTuple

from tensorgrad.ao.quantization import fake_quantize as fake
from tensorgrad.ao.quantization import observer as obs


class QConfig(NamedTuple):
    """Functions that make the observer or fake quantization for a module's results, and for its weights.

    >>> from tensorgrad.ao.quantization import MinMaxObserver, QConfig, default_weight_observer
    >>> QConfig(MinMaxObserver.with_args(reduce_range=True), default_weight_observer).weight().qscheme
    torch.per_tensor_symmetric
    """

    activation: Any
    weight: Any


default_qconfig = QConfig(obs.default_observer, obs.default_weight_observer)
default_per_channel_qconfig = QConfig(obs.default_observer, obs.default_per_channel_weight_observer)
default_dynamic_qconfig = QConfig(obs.default_dynamic_quant_observer, obs.default_weight_observer)
per_channel_dynamic_qconfig = QConfig(obs.default_dynamic_quant_observer, obs.default_per_channel_weight_observer)
float_qparams_weight_only_qconfig = QConfig(obs.default_placeholder_observer, obs.default_float_qparams_observer)
default_reuse_input_qconfig = QConfig(obs.default_reuse_input_observer, obs.NoopObserver)
default_qat_qconfig = QConfig(fake.default_fake_quant, fake.default_weight_fake_quant)


def _check_backend(name: str, backend: str) -> bool:
    """Whether a backend's integers have 7 bits, as its kernels add pairs of products in 16."""
    if backend not in ("x86", "fbgemm", "onednn", "qnnpack"):
        raise AssertionError(f"{name}: expected backend x86, fbgemm, onednn or qnnpack, got {backend!r}")
    return backend in ("x86", "fbgemm")


def get_default_qconfig(backend: str = "x86", version: int = 0) -> QConfig:
    """Returns what PyTorch uses for a backend after training.

    >>> from tensorgrad.ao.quantization import get_default_qconfig
    >>> get_default_qconfig("qnnpack").activation().reduce_range
    False
    """
    narrow = _check_backend("get_default_qconfig", backend)
    weight = obs.default_weight_observer if backend == "qnnpack" else obs.default_per_channel_weight_observer
    return QConfig(obs.HistogramObserver.with_args(reduce_range=narrow), weight)


def get_default_qat_qconfig(backend: str = "x86", version: int = 1) -> QConfig:
    """Returns what PyTorch uses for a backend during training."""
    narrow = _check_backend("get_default_qat_qconfig", backend)
    made = fake.FakeQuantize if version == 0 else fake.FusedMovingAvgObsFakeQuantize
    activation = made.with_args(
        observer=obs.MovingAverageMinMaxObserver, quant_min=0, quant_max=255, reduce_range=narrow
    )
    if version == 0:
        weights = fake.default_weight_fake_quant, fake.default_per_channel_weight_fake_quant
    else:
        weights = fake.default_fused_wt_fake_quant, fake.default_fused_per_channel_wt_fake_quant
    return QConfig(activation, weights[backend != "qnnpack"])


def qconfig_equals(q1: Any, q2: Any) -> bool:
    """Whether two configurations make the same."""
    return repr(q1) == repr(q2)
