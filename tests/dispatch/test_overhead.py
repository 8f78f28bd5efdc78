"""What small ops cost, counted in calls: a time says little on a busy machine, and one call more is easily missed."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

from tensorgrad.kernels.compiled.runtime import library

# name: (a program, the most functions that it may run with NumPy alone)
PROGRAMS = {
    "add": ("a + b", 1),  # the op's generated function
    "add, no graph": ("plain + plain", 1),
    "add a number": ("a + 2.0", 1),
    "mul": ("a * b", 3),  # keeps two factors
    "exp": ("a.exp()", 3),  # keeps its result, with a storage for it
    "matmul": ("a @ b", 2),
    "relu": ("F.relu(a)", 6),
    "ReLU": ("relu(a)", 8),
    "linear": ("F.linear(a, layer.weight, layer.bias)", 2),
    "Linear": ("layer(a)", 4),
    "index": ("a[1]", 3),
    "transpose": ("a.t()", 3),
    "sum": ("a.sum()", 5),
    "gradients": ("layer(a).sum().backward()", 42),
    "step": ("optimizer.step()", 11),
}
# The same with compiled kernels, where they serve a few numbers, too: more functions, which take less time.
COMPILED = {"linear": 5, "Linear": 7, "gradients": 45, "step": 9}
COUNT = """
    import json, sys
    import tensorgrad as torch
    from tensorgrad.nn import functional as F

    a, b = (torch.randn(4, 4, requires_grad=True) for _ in range(2))
    plain, layer, relu = torch.randn(4, 4), torch.nn.Linear(4, 8), torch.nn.ReLU()
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    counts, seen = {}, []

    def note(frame, event, _):
        if event == "call":
            seen.append(getattr(frame.f_code, "co_qualname", frame.f_code.co_name))

    for program in json.loads(sys.stdin.read()):
        run = eval("lambda: " + program)
        for _ in range(3):  # the first calls fill caches
            run()
        seen.clear()
        sys.setprofile(note)
        run()
        sys.setprofile(None)
        counts[program] = seen[1:]
    print(json.dumps(counts))
"""


SUBCLASS = """
    class Elsewhere(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return super().__torch_function__(func, types, args, kwargs or {})
    made = torch.ones(2).as_subclass(Elsewhere) + 1
"""


@pytest.fixture(scope="module", params=["", SUBCLASS], ids=["", "a subclass elsewhere"])
def program(request) -> str:
    """Counts the functions of each program; a class that overrides ops slows no other."""
    given = textwrap.dedent(COUNT)
    at = given.index("a, b = ")
    return given[:at] + textwrap.dedent(request.param) + given[at:]


@pytest.fixture(scope="module", params=["0", "1"], ids=["NumPy alone", "compiled kernels"])
def counted(request, program) -> tuple[dict[str, list[str]], dict[str, int]]:
    """The functions that each program runs, in a process of its own, and the most that it may run."""
    if request.param == "1":
        try:
            library.image()
        except library.Unusable as error:
            pytest.skip(f"compiled kernels: {error}")
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"TENSORGRAD_FAST": request.param},
        input=json.dumps([program for program, _ in PROGRAMS.values()]),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    most = {name: count for name, (_, count) in PROGRAMS.items()}
    return json.loads(done.stdout), most | (COMPILED if request.param == "1" else {})


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_small_op_runs_few_functions(name, counted):
    functions, most = counted
    seen = functions[PROGRAMS[name][0]]
    assert len(seen) <= most[name], f"{name} ran {len(seen)} functions, expected at most {most[name]}: {seen}"
