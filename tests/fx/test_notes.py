"""Notes of nodes that graphs keep when others are made of them, and graphs whose arguments are nested."""

import importlib

from tests.support.alike import alike


def module(torch, name):
    return importlib.import_module(f"{torch.__name__}.fx.{name}")


def notes(graph):
    return [
        (node.name, node.meta.get("custom"), node.meta.get("nn_module_stack"), node.stack_trace) for node in graph.nodes
    ]


@alike
def test_notes_are_kept_where_a_program_says_so(torch):
    traceback = module(torch, "traceback")
    old = torch.fx.symbolic_trace(lambda x: (x + 1).relu())
    for node in old.graph.nodes:
        node.meta["custom"], node.meta["nn_module_stack"] = {"from": node.name}, {"a": "b"}
    old.graph.nodes.__iter__().__next__()
    found = [traceback.has_preserved_node_meta(), notes(torch.fx.Transformer(old).transform().graph)]
    again = lambda x: torch.fx.Interpreter(old).run(x) * 2
    found.append(notes(torch.fx.symbolic_trace(again).graph))
    with traceback.preserve_node_meta():
        found += [traceback.has_preserved_node_meta(), notes(torch.fx.symbolic_trace(again).graph)]
        with traceback.annotate({"stage": 1}):
            found.append(notes(torch.fx.symbolic_trace(lambda x: x + 1).graph))
        traceback.set_stack_trace(["here\n"])
        found += [traceback.format_stack(), dict(traceback.get_current_meta())]
        with traceback.preserve_node_meta(False):
            found.append(traceback.has_preserved_node_meta())
    found += [traceback.has_preserved_node_meta(), dict(traceback.get_current_meta())]
    return found


@alike
def test_functions_of_nested_arguments(torch):
    graph, pytree = module(torch, "graph"), importlib.import_module(f"{torch.__name__}.utils._pytree")
    flatten = pytree.tree_flatten

    def traced(f, names, example, out):
        made = torch.fx.symbolic_trace(f)
        made.graph.set_codegen(graph._PyTreeCodeGen(graph._PyTreeInfo(names, flatten(example)[1], out)))
        made.recompile()
        return made

    one = torch.ones(2)
    out = flatten({"sum": 1, "both": [1, 2]})[1]
    first = traced(lambda a, b: [a + b, a, b], ["pair"], ([1, 2],), flatten([1, 2, 3])[1])
    second = traced(lambda a, b, c: [a + b * c, a, b], ["x", "named"], ((1, {"k": 2, "l": 3}),), None)
    third = traced(lambda a, b: [a, b, a + b], ["x", "y"], ((1,), {"y": 2}), out)
    return [
        first([one, 2 * one]), first.code, third(one, y=one), third.code, second.graph.process_inputs((one, {"k": 2})),
        first.graph.process_outputs([1, 2, 3]), isinstance(first.graph._codegen, graph._PyTreeCodeGen),
    ]  # fmt: skip
