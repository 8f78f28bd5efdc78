"""Which configuration the parts of a model get when it is quantized as a graph."""

from __future__ import annotations

import re
from typing import Any

import tensorgrad as torch
from tensorgrad import nn
from tensorgrad.ao.quantization import fake_quantize as fake
from tensorgrad.ao.quantization import observer as obs
from tensorgrad.ao.quantization.qconfig import (
    QConfig,
    default_reuse_input_qconfig,
    get_default_qat_qconfig,
    get_default_qconfig,
)

__all__ = ["QConfigMapping", "get_default_qat_qconfig_mapping", "get_default_qconfig_mapping"]

# Results of these have a range that is known, and so a scale and a zero point.
FROM_0_TO_1 = (nn.Hardsigmoid, nn.functional.hardsigmoid, "hardsigmoid", "hardsigmoid_", nn.Sigmoid, torch.sigmoid,
               "sigmoid", "sigmoid_", nn.Softmax)  # fmt: skip
FROM_MINUS_1_TO_1 = (nn.Tanh, torch.tanh, "tanh", "tanh_")


class QConfigMapping:
    """Which `QConfig` (or None: stays in floating point) each module, function or method of a model gets.

    The most specific wins: that of a name, of a pattern of names, of a type, and at last the global one.

    >>> from tensorgrad.ao.quantization import QConfigMapping, default_qconfig
    >>> mapping = QConfigMapping().set_global(default_qconfig).set_module_name("head", None)
    >>> mapping.of(torch.nn.Linear, "head.0") is None, mapping.of(torch.nn.Linear, "body") is default_qconfig
    (True, True)
    """

    def __init__(self) -> None:
        self.global_qconfig: QConfig | None = None
        self.object_type_qconfigs: dict[Any, QConfig | None] = {}
        self.module_name_regex_qconfigs: dict[str, QConfig | None] = {}
        self.module_name_qconfigs: dict[str, QConfig | None] = {}
        self.module_name_object_type_order_qconfigs: dict[tuple[str, Any, int], QConfig | None] = {}

    def set_global(self, global_qconfig: QConfig | None) -> QConfigMapping:
        """Sets what everything gets that no other setting names."""
        self.global_qconfig = global_qconfig
        return self

    def set_object_type(self, object_type: Any, qconfig: QConfig | None) -> QConfigMapping:
        """Sets what modules of a type, calls of a function, or calls of a method (by its name) get."""
        self.object_type_qconfigs[object_type] = qconfig
        return self

    def set_module_name_regex(self, module_name_regex: str, qconfig: QConfig | None) -> QConfigMapping:
        """Sets what is in modules get whose name begins with a match of a regular expression; the first one wins."""
        self.module_name_regex_qconfigs[module_name_regex] = qconfig
        return self

    def set_module_name(self, module_name: str, qconfig: QConfig | None) -> QConfigMapping:
        """Sets what a module gets, and all that is in it."""
        self.module_name_qconfigs[module_name] = qconfig
        return self

    def set_module_name_object_type_order(
        self, module_name: str, object_type: Any, index: int, qconfig: QConfig | None
    ) -> QConfigMapping:
        """Sets what the call number `index` of a function (or of a type of modules) in a module gets."""
        self.module_name_object_type_order_qconfigs[module_name, object_type, index] = qconfig
        return self

    def of(self, kind: Any, path: str, otherwise: Any = ...) -> QConfig | None:
        """Returns what a part of this kind gets in the module of this name."""
        found = self.object_type_qconfigs.get(kind, self.global_qconfig if otherwise is ... else otherwise)
        for pattern, qconfig in self.module_name_regex_qconfigs.items():
            if re.match(pattern, path):
                found = qconfig
                break
        while path:
            if path in self.module_name_qconfigs:
                return self.module_name_qconfigs[path]
            path = path.rpartition(".")[0]
        return found

    def to_dict(self) -> dict[str, Any]:
        """Returns the settings in PyTorch's form of dictionaries."""
        return {
            "": self.global_qconfig,
            "object_type": list(self.object_type_qconfigs.items()),
            "module_name_regex": list(self.module_name_regex_qconfigs.items()),
            "module_name": list(self.module_name_qconfigs.items()),
            "module_name_object_type_order": [
                (*key, qconfig) for key, qconfig in self.module_name_object_type_order_qconfigs.items()
            ],
        }

    @classmethod
    def from_dict(cls, qconfig_dict: dict[str, Any]) -> QConfigMapping:
        """Returns the settings that such a dictionary names. Other keys count for nothing."""
        made = cls()
        setters: dict[str, Any] = {
            "object_type": made.set_object_type, "module_name_regex": made.set_module_name_regex,
            "module_name": made.set_module_name,
            "module_name_object_type_order": made.set_module_name_object_type_order,
        }  # fmt: skip
        for key, value in qconfig_dict.items():
            if key == "":
                made.set_global(value)
            for entry in value if key in setters else ():
                setters[key](*entry)
        return made

    def __repr__(self) -> str:
        lines = [f" {name}\n  {value}" for name, value in vars(self).items()]
        return "\n".join([f"{type(self).__name__} (", *lines, ")"])


def _default(qconfig: QConfig, training: bool) -> QConfigMapping:
    made = QConfigMapping().set_global(qconfig).set_object_type("reshape", default_reuse_input_qconfig)
    weight = fake.default_weight_fake_quant if training else obs.default_weight_observer
    of_layer_norm = QConfig(qconfig.activation, obs.default_placeholder_observer)
    made.set_object_type(nn.functional.layer_norm, of_layer_norm).set_object_type(nn.LayerNorm, of_layer_norm)
    for kinds, observer, fake_quantize in (
        (FROM_0_TO_1, obs.default_fixed_qparams_range_0to1_observer, fake.default_fixed_qparams_range_0to1_fake_quant),
        (
            FROM_MINUS_1_TO_1,
            obs.default_fixed_qparams_range_neg1to1_observer,
            fake.default_fixed_qparams_range_neg1to1_fake_quant,
        ),
    ):
        for kind in kinds:
            made.set_object_type(kind, QConfig(fake_quantize if training else observer, weight))
    return made


def get_default_qconfig_mapping(backend: str = "x86", version: int = 0) -> QConfigMapping:
    """Returns what PyTorch uses for a backend after training.

    >>> from tensorgrad.ao.quantization import get_default_qconfig_mapping
    >>> get_default_qconfig_mapping().of(torch.sigmoid, "").activation().calculate_qparams()
    (tensor([0.0039]), tensor([0], dtype=torch.int32))
    """
    return _default(get_default_qconfig(backend, version), False)


def get_default_qat_qconfig_mapping(backend: str = "x86", version: int = 1) -> QConfigMapping:
    """Returns what PyTorch uses for a backend during training."""
    return _default(get_default_qat_qconfig(backend, version), True)
