"""`torch.onnx.export`: records a program, translates it, and writes it."""

from __future__ import annotations

import enum
import os
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tensorgrad.autograd.modes import no_grad
from tensorgrad.capture import Recording, record
from tensorgrad.capture.values import mapped, tensors
from tensorgrad.control_flow import CHOICES
from tensorgrad.nn import Module
from tensorgrad.onnx.branches import uses, with_branches, with_whole_loops
from tensorgrad.onnx.builder import Builder, Value
from tensorgrad.onnx.constants import computed
from tensorgrad.onnx.dimensions import Dimension, from_axes, from_shapes, resized, trials
from tensorgrad.onnx.errors import OnnxExporterError, OnnxExporterWarning, SymbolicValueError
from tensorgrad.onnx.folding import folded
from tensorgrad.onnx.loading import result_of
from tensorgrad.onnx.lowering import Lowering, Place, value_of
from tensorgrad.onnx.model import IR_VERSIONS, Graph, Model, Node, ValueInfo, element_type
from tensorgrad.onnx.origins import Origins
from tensorgrad.onnx.program import ONNXProgram
from tensorgrad.onnx.sizes import Size, unified
from tensorgrad.rows.switches import LOCAL
from tensorgrad.system.exporting import exporting, is_exporting
from tensorgrad.system.progress import progress, say
from tensorgrad.tensor import Tensor

DEFAULT_OPSET = 20
_CUSTOM: dict[str, Callable] = {}  # translations that were registered for all exports


class TrainingMode(enum.IntEnum):
    """In which mode a module is exported: for evaluation, as it is, or for training.

    >>> torch.onnx.TrainingMode.EVAL.name
    'EVAL'
    """

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2


class OperatorExportTypes(enum.IntEnum):
    """Which operators may appear: ONNX's own only.

    >>> torch.onnx.OperatorExportTypes.ONNX.name
    'ONNX'
    """

    ONNX = 0
    ONNX_ATEN = 1
    ONNX_ATEN_FALLBACK = 2
    ONNX_FALLTHROUGH = 3


def export(
    model: Any,
    args: Any = (),
    f: str | os.PathLike | Any | None = None,
    *,
    kwargs: dict[str, Any] | None = None,
    verbose: bool | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset_version: int | None = None,
    dynamo: bool = True,
    external_data: bool = True,
    dynamic_shapes: dict[str, Any] | tuple[Any, ...] | list[Any] | None = None,
    custom_translation_table: dict[Callable, Callable] | None = None,
    report: bool = False,
    optimize: bool = True,
    verify: bool = False,
    profile: bool = False,
    dump_exported_program: bool = False,
    artifacts_dir: str | os.PathLike = ".",
    export_params: bool = True,
    keep_initializers_as_inputs: bool = False,
    dynamic_axes: Mapping[str, Mapping[int, str]] | Mapping[str, Sequence[int]] | None = None,
    training: TrainingMode = TrainingMode.EVAL,
    operator_export_type: OperatorExportTypes = OperatorExportTypes.ONNX,
    do_constant_folding: bool = True,
    custom_opsets: Mapping[str, int] | None = None,
    export_modules_as_functions: bool | Collection[type[Module]] = False,
    autograd_inlining: bool = True,
) -> ONNXProgram | None:
    """Exports a model to ONNX.

    The model runs once on the arguments, or once for each set of sizes if there are dynamic dimensions; what it does is
    recorded (`tensorgrad.capture`) and written with ONNX's operators.

    Args:
        model: a module, or a function of tensors.
        args: its positional arguments: a tuple, or one tensor.
        f: a path to write to, or (with `dynamo=False`) a file. Without it the program is only returned.
        kwargs: its other arguments.
        verbose: whether to print each step and a summary. By default a terminal shows the current step, in a line that
            is gone at the end; with False nothing is said.
        input_names, output_names: names for the inputs and outputs, in order.
        opset_version: the version of ONNX's operators, 18 to 23; 20 by default.
        dynamo: whether an `ONNXProgram` is returned. With False, the older form, the file is all.
        external_data: with `dynamo`, whether weights are written to a second file beside `f`, `<name>.data`.
        dynamic_shapes: which dimensions may have other sizes: in the structure of the arguments, a dict from dimension
            to a name or `Dim` for each tensor.
        custom_translation_table: translations of your own: an op (`torch.relu`, `torch.ops.aten.relu.default`) and a
            function `(g, *arguments)`, which returns `g.op("Relu", x)`.
        export_params: whether the weights are written.
        keep_initializers_as_inputs: whether weights are inputs, too.
        dynamic_axes: which dimensions may have other sizes, by name of the input: `{"x": {0: "batch"}}`.
        training: whether the module is put into evaluation mode for the export, left as it is, or put into training.
        verify: whether to run the program with onnxruntime, and compare.
        custom_opsets: versions of other domains of operators.
        optimize, do_constant_folding: with both, batch norms in evaluation mode become part of the product before them,
            biases of zeros are left out, and small parts of weights are computed, unless the weights are inputs, or the
            module is exported for training.
        report, profile, dump_exported_program, artifacts_dir, operator_export_type, export_modules_as_functions,
        autograd_inlining: accepted for compatibility.

    Raises:
        UnsupportedOperatorError: If an op has no translation; the message names it and the line of the program.
        SymbolicValueError: If a size does not follow from the dynamic dimensions in a known way.
        ValueError: For options that do not fit.

    A failed export writes nothing.

    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
    >>> torch.onnx.export(model, (torch.ones(2, 3),), input_names=["x"], dynamic_axes={"x": {0: "batch"}})
    ONNXProgram(x: ['batch', 3] -> relu: ['batch', 4], 2 nodes)
    """
    opset = DEFAULT_OPSET if opset_version is None else opset_version
    if opset not in IR_VERSIONS:
        raise ValueError(f"onnx.export(): opset_version has to be from 18 to 23, but got {opset}")
    if operator_export_type != OperatorExportTypes.ONNX:
        raise NotImplementedError(
            f"onnx.export(): operator_export_type={operator_export_type!r}: only ONNX's operators"
        )
    if f is None and not dynamo:
        raise ValueError("onnx.export(): with dynamo=False a file or path `f` has to be given")
    if dynamic_axes and dynamic_shapes:
        raise ValueError("onnx.export(): give dynamic_axes or dynamic_shapes, not both")
    args = (args,) if not isinstance(args, tuple | list) else tuple(args)
    kwargs = dict(kwargs or {})
    if not dynamo and args and isinstance(args[-1], dict) and not kwargs:
        args, kwargs = args[:-1], dict(args[-1])
    if LOCAL.transforms:
        raise RuntimeError("onnx.export(): cannot begin inside of vmap, jvp or a recording")
    fold = optimize and do_constant_folding and export_params and not keep_initializers_as_inputs
    fold = fold and training != TrainingMode.TRAINING
    with progress("onnx.export", verbose):
        with _mode(model, training), _state_kept(model):
            with exporting("onnx", "export" if dynamo else "trace"):
                made = _exported(
                    model, args, kwargs, opset, list(input_names or ()), list(output_names or ()), dynamic_axes,
                    dynamic_shapes, _table(custom_translation_table), dict(custom_opsets or {}), fold,
                )  # fmt: skip
            program = ONNXProgram(made)
            if verify:
                say("running the program with onnxruntime")
                _verify(program, model, args, kwargs)
        if f is not None:
            say("writing the file")
            program.save(
                f, include_initializers=export_params, keep_initializers_as_inputs=keep_initializers_as_inputs,
                external_data=external_data if dynamo and not hasattr(f, "write") else None,
            )  # fmt: skip
    if verbose:
        print(program)
    return program if dynamo else None


def is_in_onnx_export() -> bool:
    """Returns whether an export is in progress.

    >>> torch.onnx.is_in_onnx_export()
    False
    """
    return is_exporting("onnx")


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Callable, opset_version: int) -> None:
    """Registers a translation for all exports.

    Args:
        symbolic_name: the op, "aten::relu".
        symbolic_fn: a function `(g, *arguments)`, which returns `g.op("Relu", x)`.
        opset_version: accepted for compatibility.

    >>> torch.onnx.register_custom_op_symbolic("aten::gelu", lambda g, input, approximate: g.op("Identity", input), 18)
    >>> torch.onnx.export(torch.nn.GELU(), (torch.ones(2),)).model.graph.nodes[0].operator
    'Identity'
    >>> torch.onnx.unregister_custom_op_symbolic("aten::gelu", 18)
    """
    _CUSTOM[symbolic_name.rpartition("::")[2]] = symbolic_fn


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Forgets a translation that was registered; one that was not is left alone.

    >>> torch.onnx.unregister_custom_op_symbolic("aten::gelu", 18)
    """
    _CUSTOM.pop(symbolic_name.rpartition("::")[2], None)


# --- the steps of an export -------------------------------------------------------------------------------------------


def _exported(
    model: Any, args: tuple, kwargs: dict, opset: int, input_names: list[str], output_names: list[str],
    dynamic_axes: Any, dynamic_shapes: Any, custom: dict[str, Callable], custom_opsets: dict[str, int], fold: bool,
) -> Model:  # fmt: skip
    args, kwargs = _apart((args, kwargs))
    examples = list(tensors((args, kwargs)))
    if len(input_names) > len(examples):
        raise ValueError(f"onnx.export(): {len(input_names)} input_names for {len(examples)} tensors")
    say("running the model")
    with no_grad():
        first = _recorded(model, args, kwargs)
    _warn_of_reads(first)
    names = [str(n.target) for n in first.graph.nodes if n.op == "placeholder"]
    names[: len(input_names)] = input_names
    if len(set(names)) < len(names):
        raise ValueError(f"onnx.export(): inputs have the same name: {names}")
    dimensions = []
    if dynamic_axes:
        unknown = set(dynamic_axes) - {*names, *output_names}
        if unknown:
            raise ValueError(
                f"onnx.export(): dynamic_axes names {sorted(unknown)}; there are {[*names, *output_names]}"
            )
        dimensions = from_axes(dynamic_axes, names, examples)
    elif dynamic_shapes:
        dimensions = from_shapes(model, args, kwargs, dynamic_shapes, examples)
    if not dimensions:
        return _translated(model, [first], names, output_names, opset, custom, custom_opsets, [], {}, fold)
    problem: Exception | None = None
    for sizes in trials(dimensions):
        say(f"running the model at {len(sizes)} sizes")
        try:
            with no_grad():
                given = [resized((args, kwargs), examples, dimensions, chosen) for chosen in sizes]
                recordings = [_recorded(model, a, k) for a, k in given]
            return _translated(
                model,
                recordings,
                names,
                output_names,
                opset,
                custom,
                custom_opsets,
                dimensions,
                dict(dynamic_axes or {}),
                fold,
            )
        except (OnnxExporterError, RuntimeError, ValueError, IndexError, TypeError, AssertionError) as error:
            problem = problem or error
    if isinstance(problem, OnnxExporterError):
        raise problem
    raise SymbolicValueError(
        f"onnx.export(): the program does not run at other sizes of {', '.join(d.name for d in dimensions)}: {problem}"
    ) from problem


def _recorded(model: Any, args: tuple, kwargs: dict) -> Recording:
    """The recording of a program. The results of each branch and loop have its number, and loops their beginning."""
    count = 0

    def chosen(starts: list, results: list) -> None:
        nonlocal count
        count += 1
        for tensor in starts:
            tensor._array.node.meta["start"] = True
        for tensor in results:
            tensor._array.node.meta |= {"choice": count, "loop": bool(starts)}

    CHOICES.append(chosen)
    try:
        with Origins(model) as origins:
            return record(model, *args, on_node=origins.note, **kwargs)
    finally:
        CHOICES.pop()


def _translated(
    model: Any, recordings: list[Recording], input_names: list[str], output_names: list[str], opset: int,
    custom: dict[str, Callable], custom_opsets: dict[str, int], dimensions: list[Dimension], axes: dict,
    fold: bool,
) -> Model:  # fmt: skip
    steps = unified(recordings)
    g = Builder(opset, len(recordings))
    for name in (*input_names, *output_names):
        g.unique(name)
    graph = Graph(getattr(type(model), "__name__", "main_graph") if isinstance(model, Module) else "main_graph")
    placeholders = [s for s in steps if s.node.op == "placeholder"]
    known: dict[Any, str] = {}  # sizes of the dynamic dimensions -> their names
    for i, (step, name) in enumerate(zip(placeholders, input_names, strict=True)):
        assert step.dtype is not None and step.shapes is not None
        value = Value(name, step.dtype, step.shapes)
        g.inputs.append(value)
        labels = {axis: d.name for d in dimensions for number, axis in d.places if number == i}
        for axis, size in enumerate(value.shape):
            if isinstance(size, Size):
                known.setdefault(size, labels[axis])
        graph.inputs.append(ValueInfo(name, element_type(step.dtype), _shape(value.shape, known, labels)))
    lowering = Lowering(g, custom, _state_names(model), fold)
    places = lowering.run(steps, [Place(value) for value in g.inputs])
    program = _Outputs(lowering, g, graph)
    for i, place in enumerate(places):
        program.add(place, output_names[i] if i < len(output_names) else None, known, axes)
    if len(output_names) > len(places):
        raise ValueError(f"onnx.export(): {len(output_names)} output_names for {len(places)} results")
    outputs = [v.name for v in graph.outputs]
    graph.nodes = _used(g.nodes, with_whole_loops(g.nodes, outputs, g.choices))
    if fold:
        starts = {node.inputs[2] for node in graph.nodes if (c := g.choices.get(node.outputs[0])) and c.loop}
        run = lambda part, given, name: result_of(part, given, name, opset)
        graph.nodes = computed(graph.nodes, g.initializers, outputs, starts | set(g.choices), run)
        graph.nodes = folded(graph.nodes, g.initializers, outputs, g.unique)
    used = {name for node in graph.nodes for name in node.inputs} | {v.name for v in graph.outputs}
    graph.initializers = [t for name, t in g.initializers.items() if name in used]
    graph.nodes = _used(with_branches(graph.nodes, set(outputs), g.choices), outputs)
    for i, node in enumerate(graph.nodes):
        node.name = f"{node.operator}_{i}"
    opsets = {"": opset, **{domain: custom_opsets.get(domain, 1) for domain in sorted(g.domains)}}
    from tensorgrad.version import tensorgrad as version

    return Model(graph, opsets, IR_VERSIONS[opset], "tensorgrad", version)


class _Outputs:
    """The results of a program, with names of their own."""

    def __init__(self, lowering: Lowering, g: Builder, graph: Graph) -> None:
        self.lowering, self.g, self.graph = lowering, g, graph
        self.taken = {value.name for value in g.inputs}

    def add(self, place: Place, name: str | None, known: dict, axes: dict) -> None:
        """Adds an output. An input, a weight or a second use of a value gets a node of its own."""
        g = self.g
        value = value_of(place)
        shape = value.shape if value.array is not None or value.shapes is not None else None
        made = g.name_of(value)
        if made in self.taken or made in g.initializers:
            value = g.op("Identity", value)
            made = value.name
        if name is not None:
            self._rename(made, name)
            made = value.name = name
        self.taken.add(made)
        labels = axes.get(made, {})
        labels = labels if isinstance(labels, dict) else {}
        self.graph.outputs.append(
            ValueInfo(made, element_type(value.dtype), None if shape is None else _shape(shape, known, labels, made))
        )

    def _rename(self, before: str, after: str) -> None:
        for node in self.g.nodes:
            node.inputs = [after if n == before else n for n in node.inputs]
            node.outputs = [after if n == before else n for n in node.outputs]


def _shape(shape: Any, known: dict, labels: Mapping, name: str = "") -> tuple[int | str | None, ...]:
    """A shape as ONNX writes it, with names for dynamic dimensions."""
    return tuple(
        d if not isinstance(d, Size) else labels.get(i) or known.get(d) or f"{name}_dim_{i}"
        for i, d in enumerate(shape)
    )


_SHORTENED = ("LSTM", "GRU", "RNN", "MaxPool")  # whose last outputs may be left out


def _used(nodes: list[Node], outputs: Collection[str]) -> list[Node]:
    """The nodes that the outputs need."""
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if wanted.intersection(node.outputs):
            kept.append(node)
            wanted.update(uses(node))
            while node.operator in _SHORTENED and node.outputs[-1] not in wanted:
                node.outputs.pop()
    return kept[::-1]


def _apart(values: Any) -> Any:
    """The arguments with a copy in place of a tensor that comes again: each is an input of its own."""
    seen: set[int] = set()

    def change(tensor: Tensor) -> Tensor:
        if id(tensor) in seen:
            return tensor.detach().clone()
        seen.add(id(tensor))
        return tensor

    return mapped(values, change)


# --- around it --------------------------------------------------------------------------------------------------------


def _state_names(model: Any) -> dict[int, str]:
    if not isinstance(model, Module):
        return {}
    return {id(t): name for name, t in (*model.named_buffers(), *model.named_parameters())}


def _table(given: dict[Callable, Callable] | None) -> dict[str, Callable]:
    """Custom translations by the name of the op."""
    made = dict(_CUSTOM)
    for target, translation in (given or {}).items():
        op = getattr(target, "op", None)
        if op is not None and hasattr(op, "signature"):
            name = op.name
        elif hasattr(target, "_schema"):
            name = target._schema.name.rpartition("::")[2]
        else:
            name = getattr(target, "__name__", "")
        if not name or not callable(translation):
            raise TypeError(
                f"onnx.export(): custom_translation_table: {target!r} is not an op, or its translation no function"
            )
        made[name] = translation
    return made


def _warn_of_reads(recording: Recording) -> None:
    for effect in recording.effects:
        if effect.kind == "read" and "depends on values" in effect.detail:
            warnings.warn(
                f"onnx.export(): {effect.detail}: what the program does with this size is exported as it was for the "
                "example",
                OnnxExporterWarning,
                stacklevel=4,
            )


@contextmanager
def _mode(model: Any, training: Any) -> Iterator[None]:
    """Puts a module into the mode of the export, and back."""
    if not isinstance(model, Module) or training == TrainingMode.PRESERVE:
        yield
        return
    before = {module: module.training for module in model.modules()}
    model.train(training == TrainingMode.TRAINING)
    try:
        yield
    finally:
        for module, was in before.items():
            module.training = was


@contextmanager
def _state_kept(model: Any) -> Iterator[None]:
    """Gives buffers, and the generator, what they were: recording a program runs it."""
    import tensorgrad

    state = tensorgrad.get_rng_state()
    buffers = [(b, b.detach().clone(), b._version) for b in model.buffers()] if isinstance(model, Module) else []
    try:
        yield
    finally:
        tensorgrad.set_rng_state(state)
        with no_grad():
            for buffer, before, version in buffers:
                if buffer._version != version:
                    buffer.copy_(before)


def _verify(program: ONNXProgram, model: Any, args: tuple, kwargs: dict) -> None:
    with no_grad():
        expected = list(tensors(model(*args, **kwargs)))
    for i, (found, want) in enumerate(zip(program(*args, **kwargs), expected, strict=True)):
        a, b = found.numpy(), want.detach().numpy()
        if not np.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True):
            raise OnnxExporterError(f"onnx.export(): result {i} differs by up to {np.abs(a - b).max()} in onnxruntime")
