"""Python's collector of cycles runs rarely until the first op, and then as usual."""

import pytest

from tests.support.processes import output_of

FIRST_OPS = ["torch.ones(2) + 1", "torch.relu(torch.rand(2))", "torch.nn.Linear(2, 2)(torch.ones(1, 2))"]


@pytest.mark.parametrize("op", FIRST_OPS)
def test_the_first_op_ends_the_patience(op):
    told = output_of(f"""
        import gc
        usual = gc.get_threshold()
        import tensorgrad as torch
        print(gc.get_threshold()[0] > 10 * usual[0], gc.isenabled(), gc.get_threshold()[1:] == usual[1:])
        {op}
        print(gc.get_threshold() == usual, gc.isenabled(), gc.get_freeze_count())
    """)
    assert told.split() == ["True", "True", "True", "True", "True", "0"]


def test_cycles_of_a_program_without_ops_are_collected():
    told = output_of("""
        import gc
        import tensorgrad
        before = gc.get_stats()[0]["collected"]
        for _ in range(300_000):
            cycle = []
            cycle.append(cycle)
        print(gc.get_stats()[0]["collected"] - before > 100_000)
    """)
    assert told.split() == ["True"]


@pytest.mark.parametrize("own", ["gc.set_threshold(5000, 7, 8)", "gc.disable()", "gc.freeze()", "gc.set_threshold(0)"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_what_a_program_sets_itself_stays(own, when):
    told = output_of(f"""
        import gc
        if {when == "before"}: {own}
        import tensorgrad as torch
        if {when == "after"}: {own}
        frozen, enabled, threshold = gc.get_freeze_count() > 0, gc.isenabled(), gc.get_threshold()
        torch.ones(2) + 1
        print((gc.get_freeze_count() > 0) == frozen, gc.isenabled() == enabled)
        print(gc.get_threshold() == threshold or threshold[0] == 200_000)
    """)
    assert told.split() == ["True"] * 3
