"""How a layer is divided: by columns, by rows, or only what goes in and comes out.

Source: Shoeybi et al., 2019, *Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism*;
Korthikanti et al., 2022, *Reducing Activation Recomputation in Large Transformer Models* (sequence parallelism).
"""

from __future__ import annotations

from typing import Any, ClassVar

from tensorgrad.distributed.tensor.distribute import distribute_tensor
from tensorgrad.distributed.tensor.dtensor import DTensor
from tensorgrad.distributed.tensor.placement_types import Placement, Replicate, Shard
from tensorgrad.nn.linear import Linear
from tensorgrad.nn.sparse import Embedding
from tensorgrad.tensor import Tensor

__all__ = [
    "ColwiseParallel", "ParallelStyle", "PrepareModuleInput", "PrepareModuleInputOutput", "PrepareModuleOutput",
    "RowwiseParallel", "SequenceParallel",
]  # fmt: skip


class ParallelStyle:
    """Base class of the styles; `parallelize_module` calls `_apply(module, mesh)`."""

    def _apply(self, module: Any, device_mesh: Any) -> Any:
        raise NotImplementedError


def _placed(value: Any, given: Placement | None, wanted: Placement | None, mesh: Any) -> Any:
    """A tensor that lies as `given`, moved to lie as `wanted`; other values unchanged."""
    if given is None or not isinstance(value, Tensor):
        return value
    made = value if isinstance(value, DTensor) else DTensor.from_local(value, mesh, (given,))
    return made if wanted is None else made.redistribute(placements=(wanted,))


def _shown(value: Any, local: bool) -> Any:
    return value.to_local() if local and isinstance(value, DTensor) else value


def _place_parameters(module: Any, mesh: Any, placements: dict[str, Placement]) -> None:
    for name, parameter in list(module._parameters.items()):
        if parameter is not None:
            placement = placements.get(name, Replicate())
            module._parameters[name] = distribute_tensor(parameter, mesh, [placement])


class _Divided(ParallelStyle):
    """A layer with divided weights: `weights` says how, for each class of layer."""

    weights: ClassVar[dict[type, dict[str, Placement]]]
    inputs_of: ClassVar[dict[type, Placement]]  # what the layer itself takes

    def __init__(self, input_layouts: Placement, output_layouts: Placement, use_local_output: bool) -> None:
        self.input_layouts, self.output_layouts = (input_layouts,), (output_layouts,)
        self.use_local_output = use_local_output

    def _apply(self, module: Any, device_mesh: Any) -> Any:
        kind = next((cls for cls in self.weights if isinstance(module, cls)), None)
        if kind is None:
            raise NotImplementedError(f"{type(self).__name__} currently only support nn.Linear and nn.Embedding!")
        _place_parameters(module, device_mesh, self.weights[kind])
        wanted = self.inputs_of[kind]

        def before(module: Any, args: tuple) -> tuple:
            return (_placed(args[0], self.input_layouts[0], wanted, device_mesh), *args[1:])

        def after(module: Any, args: tuple, output: Any) -> Any:
            return _shown(output.redistribute(placements=self.output_layouts), self.use_local_output)

        module.register_forward_pre_hook(before)
        module.register_forward_hook(after)
        return module


class ColwiseParallel(_Divided):
    """Each rank computes some of a layer's outputs: `Linear` weights are placed `Shard(0)`, `Embedding`'s `Shard(1)`.

    Args:
        input_layouts: how the input lies; `Replicate` if None.
        output_layouts: how the output shall lie; `Shard(-1)` if None.
        use_local_output: whether the output is this rank's piece, an ordinary tensor.

    >>> from tensorgrad.distributed.tensor.parallel import ColwiseParallel
    >>> ColwiseParallel().output_layouts
    (Shard(dim=-1),)
    """

    weights: ClassVar = {Linear: {"weight": Shard(0), "bias": Shard(0)}, Embedding: {"weight": Shard(1)}}
    inputs_of: ClassVar = {Linear: Replicate(), Embedding: Replicate()}

    def __init__(self, *, input_layouts: Any = None, output_layouts: Any = None, use_local_output: bool = True) -> None:
        super().__init__(input_layouts or Replicate(), output_layouts or Shard(-1), use_local_output)


class RowwiseParallel(_Divided):
    """Each rank computes a term of a layer's outputs: `Linear` weights are placed `Shard(1)`, `Embedding`'s `Shard(0)`.

    Args:
        input_layouts: how the input lies; `Shard(-1)` if None.
        output_layouts: how the output shall lie; `Replicate` if None.
        use_local_output: whether the output is this rank's piece, an ordinary tensor.

    >>> from tensorgrad.distributed.tensor.parallel import RowwiseParallel
    >>> RowwiseParallel().input_layouts
    (Shard(dim=-1),)
    """

    weights: ClassVar = {Linear: {"weight": Shard(1), "bias": Replicate()}, Embedding: {"weight": Shard(0)}}
    inputs_of: ClassVar = {Linear: Shard(-1), Embedding: Replicate()}

    def __init__(self, *, input_layouts: Any = None, output_layouts: Any = None, use_local_output: bool = True) -> None:
        super().__init__(input_layouts or Shard(-1), output_layouts or Replicate(), use_local_output)


class SequenceParallel(ParallelStyle):
    """A layer that works on each position by itself (LayerNorm, Dropout): each rank has some positions.

    Args:
        sequence_dim: the dimension of the positions.
        use_local_output: whether the output is this rank's piece, an ordinary tensor.

    >>> from tensorgrad.distributed.tensor.parallel import SequenceParallel
    >>> SequenceParallel(sequence_dim=0).sequence_sharding
    (Shard(dim=0),)
    """

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False) -> None:
        self.sequence_sharding = (Shard(sequence_dim),)
        self.use_local_output = use_local_output

    def _apply(self, module: Any, device_mesh: Any) -> Any:
        _place_parameters(module, device_mesh, {})
        place = self.sequence_sharding[0]
        module.register_forward_pre_hook(lambda module, args: (_placed(args[0], place, place, device_mesh), *args[1:]))
        module.register_forward_hook(lambda module, args, output: _shown(output, self.use_local_output))
        return module


def _tuple(value: Any) -> tuple:
    return value if isinstance(value, tuple) else (value,)


class PrepareModuleInput(ParallelStyle):
    """Moves the arguments of a module's forward.

    Args:
        input_layouts: how the positional arguments lie; None for what is not to be touched.
        desired_input_layouts: how they shall lie.
        input_kwarg_layouts: the same for keyword arguments, by name.
        desired_input_kwarg_layouts: how these shall lie.
        use_local_output: whether the module gets this rank's pieces, ordinary tensors.

    Raises:
        AssertionError: the lists do not fit together.

    >>> from tensorgrad.distributed.tensor import Replicate, Shard
    >>> from tensorgrad.distributed.tensor.parallel import PrepareModuleInput
    >>> PrepareModuleInput(input_layouts=Shard(0), desired_input_layouts=Replicate()).input_layouts
    (Shard(dim=0),)
    """

    def __init__(
        self,
        *,
        input_layouts: Any = None,
        desired_input_layouts: Any = None,
        input_kwarg_layouts: dict[str, Any] | None = None,
        desired_input_kwarg_layouts: dict[str, Any] | None = None,
        use_local_output: bool = False,
    ) -> None:
        self.input_layouts = None if input_layouts is None else _tuple(input_layouts)
        self.desired_input_layouts = None if desired_input_layouts is None else _tuple(desired_input_layouts)
        self.input_kwarg_layouts = input_kwarg_layouts or {}
        self.desired_input_kwarg_layouts = desired_input_kwarg_layouts or {}
        self.use_local_output = use_local_output
        if self.input_layouts is not None and len(self.input_layouts) != len(self.desired_input_layouts or ()):
            raise AssertionError("input_layouts and desired_input_layouts should have same length!")

    def _apply(self, module: Any, device_mesh: Any) -> Any:
        def move(value: Any, given: Any, wanted: Any) -> Any:
            return _shown(_placed(value, given, wanted, device_mesh), self.use_local_output and given is not None)

        def before(module: Any, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
            if self.input_layouts is not None:
                if len(args) != len(self.input_layouts):
                    raise ValueError("module inputs and input_layouts should have same length!")
                args = tuple(map(move, args, self.input_layouts, self.desired_input_layouts or ()))
            given, wanted = self.input_kwarg_layouts, self.desired_input_kwarg_layouts
            return args, {name: move(value, given.get(name), wanted.get(name)) for name, value in kwargs.items()}

        module.register_forward_pre_hook(before, with_kwargs=True)
        return module


class PrepareModuleOutput(ParallelStyle):
    """Moves the results of a module's forward.

    Args:
        output_layouts: how the results lie; None for what is not to be touched.
        desired_output_layouts: how they shall lie.
        use_local_output: whether they are this rank's pieces, ordinary tensors.

    Raises:
        AssertionError: the lists do not fit together.

    >>> from tensorgrad.distributed.tensor import Replicate, Shard
    >>> from tensorgrad.distributed.tensor.parallel import PrepareModuleOutput
    >>> PrepareModuleOutput(output_layouts=Shard(0), desired_output_layouts=Replicate()).use_local_output
    True
    """

    def __init__(self, *, output_layouts: Any, desired_output_layouts: Any, use_local_output: bool = True) -> None:
        self.output_layouts, self.desired_output_layouts = _tuple(output_layouts), _tuple(desired_output_layouts)
        self.use_local_output = use_local_output
        if len(self.output_layouts) != len(self.desired_output_layouts):
            raise AssertionError("output_layouts and desired_output_layouts should have same length!")

    def _apply(self, module: Any, device_mesh: Any) -> Any:
        def after(module: Any, args: tuple, output: Any) -> Any:
            several = _tuple(output)
            if len(several) != len(self.output_layouts):
                raise ValueError("module outputs and output_layouts should have same length!")
            moved = tuple(
                _shown(_placed(value, given, wanted, device_mesh), self.use_local_output)
                for value, given, wanted in zip(several, self.output_layouts, self.desired_output_layouts)
            )
            return moved if isinstance(output, tuple) else moved[0]

        module.register_forward_hook(after)
        return module


class PrepareModuleInputOutput(ParallelStyle):
    """`PrepareModuleInput` and `PrepareModuleOutput` together, with their arguments.

    Args:
        use_local_input: `use_local_output` of the first.
        options: the other arguments of both.

    >>> from tensorgrad.distributed.tensor import Replicate, Shard
    >>> from tensorgrad.distributed.tensor.parallel import PrepareModuleInputOutput
    >>> style = PrepareModuleInputOutput(
    ...     input_layouts=Shard(0), desired_input_layouts=Replicate(),
    ...     output_layouts=Replicate(), desired_output_layouts=Shard(0),
    ... )
    """

    def __init__(
        self, *, use_local_input: bool = False, use_local_output: bool = True, output_layouts: Any,
        desired_output_layouts: Any, **options: Any,
    ) -> None:  # fmt: skip
        self.before = PrepareModuleInput(use_local_output=use_local_input, **options)
        self.after = PrepareModuleOutput(
            output_layouts=output_layouts,
            desired_output_layouts=desired_output_layouts,
            use_local_output=use_local_output,
        )

    def _apply(self, module: Any, device_mesh: Any) -> Any:
        return self.after._apply(self.before._apply(module, device_mesh), device_mesh)
