"""Exported programs have PyTorch's inputs, outputs and operators."""

import pytest

import tensorgrad
from tests.export.models import AS_EXPORTED, DECOMPOSED, make, targets
from tests.support.alike import alike

torch = pytest.importorskip("torch", reason="compares with torch")
NAMES = list(make(tensorgrad))


def programs(library, name):
    module, args, kwargs = make(library)[name]
    exported = library.export.export(module, args, kwargs)
    return exported, exported.run_decompositions()


@pytest.mark.parametrize("name", NAMES)
def test_signatures_and_operators(name):
    ours, theirs = programs(tensorgrad, name), programs(torch, name)
    for one, other, same in zip(ours, theirs, (AS_EXPORTED, DECOMPOSED), strict=True):
        inputs = [str(spec) for spec in one.graph_signature.input_specs]
        assert inputs == [str(spec) for spec in other.graph_signature.input_specs]
        kinds = [(s.kind.name, s.target) for s in one.graph_signature.output_specs]
        assert kinds == [(s.kind.name, s.target) for s in other.graph_signature.output_specs]
        assert list(one.state_dict) == list(other.state_dict) and set(one.constants) == set(other.constants)
        if name in same:
            assert targets(one) == targets(other)
    assert ours[0].call_spec.in_spec == tensorgrad.utils._pytree.tree_structure(ours[0].example_inputs)


@alike
def test_arguments_of_nodes(torch):
    module, args, kwargs = make(torch)["ConvNet"]
    graph = torch.export.export(module, args, kwargs).graph
    return [(n.op, n.name, str(n.args), str(n.kwargs)) for n in graph.nodes]


@alike
def test_what_a_program_is_told_while_it_is_exported(torch):
    from importlib import import_module

    told = []

    class Told(torch.nn.Module):
        def forward(self, x):
            asked = torch.compiler
            told.append([asked.is_compiling(), asked.is_exporting(), asked.is_dynamo_compiling()])
            told[-1] += [torch.jit.is_tracing(), torch._C._is_tracing(), torch.jit.is_scripting()]
            return x + 1

    x, module = torch.ones(2), Told()
    module(x)
    import_module(torch.__name__ + ".export").export(module, (x,))
    torch.jit.trace(module, x, check_trace=False)
    module(x)
    return [one for i, one in enumerate(told) if i == 0 or one != told[i - 1]]


@alike
def test_dimensions(torch):
    from importlib import import_module

    Dim = import_module(torch.__name__ + ".export").Dim
    batch = Dim("batch", min=2, max=8)
    found = [batch.__name__, batch.min, batch.max, (2 * batch).__name__, (batch + 1).__name__, (batch - 1).__name__]
    for wrong in (lambda: Dim("a", min=3, max=2), lambda: batch * 0.5, lambda: batch * -1):
        try:
            wrong()
        except Exception as error:
            found.append(type(error).__name__)
    return found


@alike
def test_what_a_module_refuses(torch):
    from importlib import import_module

    export = import_module(torch.__name__ + ".export")
    module, args, kwargs = make(torch)["MLP"]
    program = export.export(module, args, kwargs)
    found = []
    calls = (
        lambda: program.module()(torch.ones(4, 3)),
        lambda: program.module()(torch.ones(5, 3), 1),
        lambda: program(torch.ones(5, 3)),
        lambda: program.module().train(),
        lambda: export.export(torch.sin, (torch.ones(1),)),
    )
    for call in calls:
        try:
            call()
        except Exception as error:
            found.append((type(error).__name__, str(error)[:25]))
    return found
