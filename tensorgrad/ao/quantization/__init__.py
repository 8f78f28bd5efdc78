"""Quantization of models, module by module (PyTorch's eager workflow)."""

from tensorgrad.ao.quantization import fake_quantize, observer, qconfig, stubs
from tensorgrad.ao.quantization.fake_quantize import *
from tensorgrad.ao.quantization.fuse_modules import fuse_modules, fuse_modules_qat
from tensorgrad.ao.quantization.observer import *
from tensorgrad.ao.quantization.qconfig import *
from tensorgrad.ao.quantization.qconfig_mapping import (
    QConfigMapping,
    get_default_qat_qconfig_mapping,
    get_default_qconfig_mapping,
)
from tensorgrad.ao.quantization.quantize import (
    add_quant_dequant,
    convert,
    get_default_dynamic_quant_module_mappings,
    get_default_qat_module_mappings,
    get_default_static_quant_module_mappings,
    prepare,
    prepare_qat,
    propagate_qconfig_,
    quantize,
    quantize_dynamic,
)
from tensorgrad.ao.quantization.stubs import DeQuantStub, QuantStub, QuantWrapper
