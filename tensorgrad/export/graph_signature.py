"""What the inputs and outputs of an exported graph are: parameters, buffers, constants, the user's, mutations."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

__all__ = [
    "ConstantArgument", "ExportGraphSignature", "InputKind", "InputSpec", "OutputKind", "OutputSpec", "SymIntArgument",
    "TensorArgument",
]  # fmt: skip


@dataclass
class TensorArgument:
    """A tensor, by the name of its node.

    >>> torch.export.export(torch.nn.ReLU(), (torch.ones(2),)).graph_signature.input_specs[0].arg
    TensorArgument(name='input')
    """

    name: str


@dataclass
class SymIntArgument:
    """A size, by the name of its node.

    >>> torch.export.graph_signature.SymIntArgument("sym_size_int").name
    'sym_size_int'
    """

    name: str


@dataclass
class ConstantArgument:
    """A value that is part of the program: an input that has to be this, or an output that is.

    >>> torch.export.graph_signature.ConstantArgument("dim", 1).value
    1
    """

    name: str
    value: Any


ArgumentSpec = TensorArgument | SymIntArgument | ConstantArgument


class InputKind(enum.Enum):
    """What an input of a graph is.

    >>> torch.export.graph_signature.InputKind.PARAMETER.name
    'PARAMETER'
    """

    USER_INPUT = enum.auto()
    PARAMETER = enum.auto()
    BUFFER = enum.auto()
    CONSTANT_TENSOR = enum.auto()
    CUSTOM_OBJ = enum.auto()
    TOKEN = enum.auto()


class OutputKind(enum.Enum):
    """What an output of a graph is.

    >>> torch.export.graph_signature.OutputKind.BUFFER_MUTATION.name
    'BUFFER_MUTATION'
    """

    USER_OUTPUT = enum.auto()
    LOSS_OUTPUT = enum.auto()
    BUFFER_MUTATION = enum.auto()
    PARAMETER_MUTATION = enum.auto()
    GRADIENT_TO_PARAMETER = enum.auto()
    GRADIENT_TO_USER_INPUT = enum.auto()
    USER_INPUT_MUTATION = enum.auto()
    TOKEN = enum.auto()


@dataclass
class InputSpec:
    """One input of a graph.

    Attributes:
        kind: what it is.
        arg: its node.
        target: the name of the parameter, buffer or constant.
        persistent: whether a buffer is part of the `state_dict`.

    >>> torch.export.export(torch.nn.ReLU(), (torch.ones(2),)).graph_signature.input_specs[0].kind.name
    'USER_INPUT'
    """

    kind: InputKind
    arg: ArgumentSpec
    target: str | None
    persistent: bool | None = None

    def __str__(self) -> str:
        target = "" if self.target is None else f" target={self.target!r}"
        persistent = "" if self.persistent is None else f" persistent={self.persistent}"
        return f"{self.arg.name}: {self.kind.name}{target}{persistent}"


@dataclass
class OutputSpec:
    """One output of a graph.

    Attributes:
        kind: what it is.
        arg: its node.
        target: what is to have its value after a run: a buffer, a parameter or an input.

    >>> torch.export.export(torch.nn.ReLU(), (torch.ones(2),)).graph_signature.output_specs[0].kind.name
    'USER_OUTPUT'
    """

    kind: OutputKind
    arg: ArgumentSpec
    target: str | None

    def __str__(self) -> str:
        target = "" if self.target is None else f" target={self.target!r}"
        return f"{self.arg.name}: {self.kind.name}{target}"


@dataclass
class ExportGraphSignature:
    """The inputs and outputs of an exported graph, in order.

    >>> program = torch.export.export(torch.nn.Linear(2, 1), (torch.ones(3, 2),))
    >>> print(program.graph_signature)
    <BLANKLINE>
    # inputs
    p_weight: PARAMETER target='weight'
    p_bias: PARAMETER target='bias'
    input: USER_INPUT
    <BLANKLINE>
    # outputs
    linear: USER_OUTPUT
    <BLANKLINE>
    """

    input_specs: list[InputSpec]
    output_specs: list[OutputSpec]

    def _targets(self, kind: InputKind) -> list[str]:
        return [s.target for s in self.input_specs if s.kind is kind and s.target is not None]

    def _inputs(self, kind: InputKind) -> Mapping[str, str]:
        found = {s.arg.name: s.target for s in self.input_specs if s.kind is kind and s.target is not None}
        return MappingProxyType(found)

    def _mutated(self, kind: OutputKind) -> Mapping[str, str]:
        found = {s.arg.name: s.target for s in self.output_specs if s.kind is kind and s.target is not None}
        return MappingProxyType(found)

    @property
    def parameters(self) -> list[str]:
        """The parameters' names."""
        return self._targets(InputKind.PARAMETER)

    @property
    def buffers(self) -> list[str]:
        """The buffers' names."""
        return self._targets(InputKind.BUFFER)

    @property
    def non_persistent_buffers(self) -> list[str]:
        """The names of buffers that are not part of the `state_dict`."""
        return [s.target for s in self.input_specs if s.persistent is False and s.target is not None]

    @property
    def lifted_tensor_constants(self) -> list[str]:
        """The constants' names."""
        return self._targets(InputKind.CONSTANT_TENSOR)

    @property
    def lifted_custom_objs(self) -> list[str]:
        """The names of objects that are not tensors: there are none."""
        return self._targets(InputKind.CUSTOM_OBJ)

    @property
    def user_inputs(self) -> list[Any]:
        """The user's inputs: names of nodes, or values that are part of the program."""
        return [_shown(s.arg) for s in self.input_specs if s.kind is InputKind.USER_INPUT]

    @property
    def user_outputs(self) -> list[Any]:
        """The user's outputs."""
        return [_shown(s.arg) for s in self.output_specs if s.kind is OutputKind.USER_OUTPUT]

    @property
    def inputs_to_parameters(self) -> Mapping[str, str]:
        """Nodes to parameters."""
        return self._inputs(InputKind.PARAMETER)

    @property
    def inputs_to_buffers(self) -> Mapping[str, str]:
        """Nodes to buffers."""
        return self._inputs(InputKind.BUFFER)

    @property
    def inputs_to_lifted_tensor_constants(self) -> Mapping[str, str]:
        """Nodes to constants."""
        return self._inputs(InputKind.CONSTANT_TENSOR)

    @property
    def inputs_to_lifted_custom_objs(self) -> Mapping[str, str]:
        """Nodes to objects that are not tensors: there are none."""
        return self._inputs(InputKind.CUSTOM_OBJ)

    @property
    def buffers_to_mutate(self) -> Mapping[str, str]:
        """Nodes to the buffers that are to have their values."""
        return self._mutated(OutputKind.BUFFER_MUTATION)

    @property
    def parameters_to_mutate(self) -> Mapping[str, str]:
        """Nodes to the parameters that are to have their values."""
        return self._mutated(OutputKind.PARAMETER_MUTATION)

    @property
    def user_inputs_to_mutate(self) -> Mapping[str, str]:
        """Nodes to the inputs that are to have their values."""
        return self._mutated(OutputKind.USER_INPUT_MUTATION)

    @property
    def backward_signature(self) -> None:
        """What a backward pass in the graph computes: there is none."""
        return None

    @property
    def input_tokens(self) -> list[str]:
        """Tokens that order effects: there are none."""
        return []

    @property
    def output_tokens(self) -> list[str]:
        """Tokens that order effects: there are none."""
        return []

    @property
    def assertion_dep_token(self) -> None:
        """The token of assertions: there is none."""
        return None

    def replace_all_uses(self, old: str, new: str) -> None:
        """Renames a node."""
        specs: list[InputSpec | OutputSpec] = [*self.input_specs, *self.output_specs]
        for spec in specs:
            if spec.arg.name == old:
                spec.arg.name = new

    def __str__(self) -> str:
        inputs, outputs = "\n".join(map(str, self.input_specs)), "\n".join(map(str, self.output_specs))
        return f"\n# inputs\n{inputs}\n\n# outputs\n{outputs}\n"


def _shown(arg: ArgumentSpec) -> Any:
    return arg.value if isinstance(arg, ConstantArgument) else arg.name
