"""What a user may set for the steps of the workflow on graphs."""

from __future__ import annotations

from typing import Any


class _Preserving:
    """What all have in common: attributes of the model that its graph keeps."""

    def __init__(self) -> None:
        self.preserved_attributes: list[str] = []

    def set_preserved_attributes(self, attributes: list[str]) -> Any:
        """Sets the names of attributes that the result shall have, though the graph does not use them."""
        self.preserved_attributes = attributes
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v}' for k, v in vars(self).items() if v)})"


class FuseCustomConfig(_Preserving):
    """Settings of `fuse_fx`."""


class ConvertCustomConfig(_Preserving):
    """Settings of `convert_fx`."""


class PrepareCustomConfig(_Preserving):
    """Settings of `prepare_fx` and `prepare_qat_fx`.

    >>> from tensorgrad.ao.quantization.fx import PrepareCustomConfig
    >>> PrepareCustomConfig().set_input_quantized_indexes([0])
    PrepareCustomConfig(input_quantized_indexes=[0])
    """

    def __init__(self) -> None:
        super().__init__()
        self.non_traceable_module_names: list[str] = []
        self.non_traceable_module_classes: list[type] = []
        self.input_quantized_indexes: list[int] = []
        self.output_quantized_indexes: list[int] = []

    def set_non_traceable_module_names(self, module_names: list[str]) -> PrepareCustomConfig:
        """Sets the names of modules that are one step of the graph, and stay as they are."""
        self.non_traceable_module_names = module_names
        return self

    def set_non_traceable_module_classes(self, module_classes: list[type]) -> PrepareCustomConfig:
        """Sets the classes of modules that are one step of the graph, and stay as they are."""
        self.non_traceable_module_classes = module_classes
        return self

    def set_input_quantized_indexes(self, indexes: list[int]) -> PrepareCustomConfig:
        """Sets which inputs of the model will be quantized tensors."""
        self.input_quantized_indexes = indexes
        return self

    def set_output_quantized_indexes(self, indexes: list[int]) -> PrepareCustomConfig:
        """Sets which results of the model stay quantized tensors."""
        self.output_quantized_indexes = indexes
        return self
