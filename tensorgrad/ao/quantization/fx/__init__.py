"""Quantization of models as graphs: what `quantize_fx` does, step by step."""

from tensorgrad.ao.quantization.fx.custom_config import ConvertCustomConfig, FuseCustomConfig, PrepareCustomConfig

__all__ = ["ConvertCustomConfig", "FuseCustomConfig", "PrepareCustomConfig"]
