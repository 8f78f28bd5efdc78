"""`TENSORGRAD_COMPILE=check` runs the program and its plan each time, and compares all that they leave behind."""

import pytest

import tensorgrad as torch
from tensorgrad.capture.region import Region
from tensorgrad.capture.running import RUNNING, PlanError
from tests.support.processes import environment, output_of


@pytest.fixture
def checked(monkeypatch):
    """A region with a plan, a training step, under `TENSORGRAD_COMPILE=check`; and what it depends on."""
    monkeypatch.setattr(RUNNING, "check", True)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Dropout(0.5), torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    calls = []

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    region = Region(step)
    for _ in range(6):
        region(torch.ones(2, 2))
    assert region.plans == 1, region.explain()
    ((_, plan),) = next(iter(region.kinds.values())).plans
    ran = plan.run

    def run(*inputs):
        calls.append(1)
        return ran(*inputs)

    plan.run = run
    return region, plan, model, calls


def test_both_run_and_the_state_is_that_of_one_call(checked):
    region, _, model, calls = checked
    state, before = torch.get_rng_state(), [p.detach().clone() for p in model.parameters()]
    loss = region(torch.ones(2, 2))
    assert len(calls) == 1
    moved, after = [p.tolist() for p in model.parameters()], torch.get_rng_state().tolist()
    torch.set_rng_state(state)
    assert region.function(torch.ones(2, 2)).item() != loss.item()  # the parameters and the momentum have moved
    assert torch.get_rng_state().tolist() == after
    assert any(a != b.tolist() for a, b in zip(moved, before, strict=True))


WRONG = {
    "the result": lambda model, loss: loss + 1,
    "a parameter": lambda model, loss: (model[0].weight.data.add_(1), loss)[1],
    "a gradient": lambda model, loss: (model[0].weight.grad.add_(1), loss)[1],
    "a generator": lambda model, loss: (torch.rand(1), loss)[1],
}


@pytest.mark.parametrize("what", WRONG)
def test_a_plan_that_does_something_else_is_an_error(checked, what):
    region, plan, model, _ = checked
    ran = plan.run
    plan.run = lambda *inputs: WRONG[what](model, ran(*inputs))
    with pytest.raises(PlanError, match="is not what its program is"):
        region(torch.ones(2, 2))


def test_the_variable_switches_it_on():
    code = "from tensorgrad.capture.running import RUNNING; print(RUNNING.check)"
    assert output_of(code, env=environment(TENSORGRAD_COMPILE="check")).strip() == "True"
