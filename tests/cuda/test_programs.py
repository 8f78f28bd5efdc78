"""Complete PyTorch programs, unchanged, on the GPU: the losses of the CPU."""

import json

import pytest

from tests.cuda.conftest import MODE
from tests.run_programs import PROGRAMS
from tests.support.processes import ROOT, environment, output_of

NAMES = [path.stem for path in PROGRAMS]
ON_CPU = {"seq2seq_attention": "it makes a tensor of lengths, which must be on the CPU"}
QUICK = ("mlp", "classic_variable")  # on the emulator
STEPS = 10 if MODE == "cuda" else 2
TOLERANCE = 5e-3  # relative; sums in another order, which training spreads


@pytest.mark.parametrize("name", NAMES if MODE == "cuda" else QUICK)
def test_a_program_learns_the_same(name):
    if name in ON_CPU:
        pytest.skip(ON_CPU[name])
    alone = environment("DEBUG", OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
    printed = output_of(None, "-m", "tests.cuda.run_program", name, STEPS, cwd=ROOT, env=alone)
    here, there, allocations = json.loads(printed.splitlines()[-1])
    assert len(here) == STEPS and there == pytest.approx(here, rel=TOLERANCE, abs=1e-5)
    assert allocations > 100
