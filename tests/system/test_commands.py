"""The commands: each is listed, answers `--help`, and says what is wrong with its arguments."""

import re

import pytest

from tensorgrad.__main__ import COMMANDS, listed
from tests.support.processes import ROOT, output_of, run_python

# What runs as the main program of a process that the package starts itself.
INNER = {"distributed.elastic.worker", "distributed.mpi.pmi_server", "system.watchdog"}


def test_every_command_is_listed():
    found = set()
    for path in (ROOT / "tensorgrad").rglob("*.py"):
        if re.search(r'^if __name__ == "__main__":', path.read_text(encoding="utf-8"), re.M):
            found.add(".".join(path.relative_to(ROOT / "tensorgrad").with_suffix("").parts).removesuffix(".__main__"))
    assert found - INNER - {"__main__"} == set(COMMANDS)
    printed = output_of(None, "-m", "tensorgrad")
    assert listed() in printed and printed == output_of(None, "-m", "tensorgrad", "--help")


def test_the_page_lists_them():
    page = (ROOT / "docs" / "reference" / "tools.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `python -m tensorgrad\.(\S+)` \| (.*?) \|$", page, re.M))
    assert rows == {name: text for name, text in COMMANDS.items() if not name.startswith("_")}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_answers_help(name):
    direct = run_python(None, "-m", f"tensorgrad.{name}", "--help")
    assert direct.returncode == 0 and not direct.stderr
    assert f"python -m tensorgrad.{name}" in direct.stdout


def test_a_command_runs_by_its_name_alone(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import sys, torch; print(torch.__package__, sys.argv)")
    assert output_of(None, "-m", "tensorgrad", "run", program, "--help") == f"tensorgrad {[str(program), '--help']}\n"
    assert "MulBackward0" in output_of(None, "-m", "tensorgrad", "dispatch.show", "mul")


def test_a_command_that_does_not_exist():
    done = run_python(None, "-m", "tensorgrad", "inf")
    assert done.returncode == 1 and "no command 'inf'; close: info" in done.stderr and done.stderr.count("\n") == 1


def test_a_program_of_no_family_is_refused():
    done = run_python(None, "-m", "tensorgrad.kernels.cuda.runtime.program", "sofmax")
    assert done.returncode == 2 and "softmax" in done.stderr and "Traceback" not in done.stderr


def test_console_scripts_are_those_of_the_project():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    scripts = dict(re.findall(r'^(\S+) = "(tensorgrad[\w.]*:\w+)"$', text, re.M))
    assert set(scripts) == {"tensorgrad", "tensorgrad-run"}
    for place in scripts.values():
        module, name = place.split(":")
        assert callable(getattr(__import__(module, fromlist=["_"]), name))
