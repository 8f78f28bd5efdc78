"""Passes over graphs (`torch.fx.passes.infra`), beside PyTorch's."""

import importlib

from tests.support.alike import alike, error


def parts(torch):
    place = f"{torch.__name__}.fx.passes.infra"
    return importlib.import_module(f"{place}.pass_base"), importlib.import_module(f"{place}.pass_manager")


def traced(torch):
    return torch.fx.symbolic_trace(lambda x: torch.relu(x + 1) * 2)


@alike
def test_a_pass_checks_before_and_after(torch):
    base, _ = parts(torch)
    story = []

    class Replace(base.PassBase):
        def requires(self, graph_module):
            story.append("requires")

        def ensures(self, graph_module):
            story.append("ensures")

        def call(self, graph_module):
            story.append("call")
            for node in graph_module.graph.nodes:
                if node.target is torch.relu:
                    node.target = torch.tanh
            return base.PassResult(graph_module, True)

    result = Replace()(traced(torch))
    result.graph_module.recompile()
    x = torch.arange(3.0)
    return story, result.modified, result[1], result._fields, result.graph_module(x), error(base.PassBase)[:30]


@alike
def test_passes_run_until_nothing_changes(torch):
    base, manager = parts(torch)
    story = []

    def shorter(module):
        story.append(len(story))
        return base.PassResult(module, len(story) < 3)

    runs = [manager.PassManager([shorter], steps=steps)(traced(torch)).modified for steps in (5, 1, None)]
    wrapped = manager.pass_result_wrapper(lambda module: story.append("wrapped"))
    layer = torch.nn.Linear(2, 2)
    other = manager.pass_result_wrapper(lambda module: layer)(traced(torch))
    made = manager.PassManager()
    made.add_pass(wrapped)
    return runs, made(layer).modified, other.modified, other.graph_module is layer, story


@alike
def test_passes_have_an_order(torch):
    base, manager = parts(torch)
    story = []

    def named(name):
        def run(module):
            story.append(name)
            return base.PassResult(module, False)

        return run

    a, b, c = map(named, "abc")
    before = manager.this_before_that_pass_constraint
    made = manager.PassManager([a, b, c], [before(c, a), before(b, a)])
    wrong = error(made.validate_constraints).partition(".")[0]
    made(traced(torch))
    again = manager.PassManager([b, a], [before(b, a)])
    again.validate_constraints()
    circle = manager.PassManager([a, b], [before(a, b)])
    circle.add_constraint(before(b, a))
    return story, wrong, error(circle, traced(torch)).partition("[")[0]


@alike
def test_what_fails_in_passes_is_told(torch):
    base, manager = parts(torch)

    def first(module):
        return base.PassResult(module, False)

    def broken(module):
        raise ValueError("no")

    checked = []
    made = manager.PassManager([first, first], run_checks_after_each_pass=True)
    made.add_checks(lambda module: checked.append(type(module).__name__))
    made(torch.nn.Linear(2, 2))
    return (
        error(manager.PassManager([first, broken]), traced(torch)),
        error(manager.PassManager([lambda module: 3]), traced(torch)),
        error(made.add_checks, lambda a, b: None),
        checked,
    )
