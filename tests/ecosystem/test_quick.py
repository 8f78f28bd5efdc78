"""The most used libraries import and train without torch, and the examples with them run, in one environment made once.

`python -m tests.ecosystem` runs all libraries and all programs, each library in an environment of its own.
"""

import re

import pytest

from tests.ecosystem import running
from tests.ecosystem.environments import Unavailable, quick_environment
from tests.ecosystem.libraries import LIBRARIES
from tests.support.processes import ROOT

pytestmark = pytest.mark.slow

# What each example prints under torch, too: the beginnings of some lines.
EXAMPLES = {
    "lora.py": (
        "the model counts up:         [20, 21, 22, 23, 24, 25, 26]",
        "with LoRA (17,408 of 104,768 parameters) it counts down: [20, 19, 18, 17, 16, 15, 14]",
        "without the adapter, up:     [20, 21, 22, 23, 24, 25, 26]",
    ),
    "transformers_trainer.py": (
        "{'loss': '0.6902', 'grad_norm': '0.5133', 'learning_rate': '0.001708', 'epoch': '0.5'}",
        "{'eval_loss': '0.5884', 'eval_accuracy': '1',",
        "accuracy on sentences not seen in training: 1.00",
    ),
    "lightning_digits.py": ("accuracy on held-out digits 0.955",),
    "embedding_server.py --once cat": ("[0.11019",),
    # From one BLAS or set of kernels to another, the loss differs by 0.0004, and 3 of 360 images are read otherwise.
    "timm_digits.py": (re.compile(r"epoch 1, loss 2\.14[78]\d, accuracy 0\.2[89]\d$"),),
}


@pytest.fixture(scope="module")
def python():
    try:
        return quick_environment()
    except Unavailable as error:
        pytest.skip(f"the environment cannot be made: {error}")


@pytest.mark.parametrize("library", [row for row in LIBRARIES if row.quick], ids=lambda row: row.name)
def test_imports_and_trains(library, python):
    name = library.programs[0]
    running.compare(name, running.import_and_run(python, library, name))


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_of_libraries_print_what_they_print_under_torch(name, python, tmp_path):
    program, *arguments = name.split()
    done = python.run([str(ROOT / "examples" / "libraries" / program), *arguments], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for expected in EXAMPLES[name]:
        begins = (
            expected.match if isinstance(expected, re.Pattern) else lambda line, text=expected: line.startswith(text)
        )
        assert any(map(begins, lines)), f"{expected!r} is missing in\n{done.stdout}"
