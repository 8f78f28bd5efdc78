"""Processes that the library starts have the options of the current interpreter: -I, -E, -s and the others."""

import ast
import os
import re
import sys
import textwrap
import threading
from pathlib import Path

import pytest

import tensorgrad
from tensorgrad.system import processes
from tests.support.processes import environment, output_of

ROOT = Path(tensorgrad.__file__).parent

# Runs with an option, starts a process in each of the ways the library does, and prints their output.
PROGRAM = """
    import contextlib, importlib.util, multiprocessing, subprocess, sys
    sys.path[:] = {path!r}
    REPORT = "import sys; print(tuple(sys.flags), sys.warnoptions, sys.pycache_prefix, flush=True)"

    def command():
        from tensorgrad.system.processes import python
        subprocess.run(python("-c", REPORT), check=True)

    def spawn(method="spawn"):
        import tensorgrad
        process = tensorgrad.multiprocessing.get_context(method).Process(target=exec, args=(REPORT,))
        process.start()
        process.join()

    def forkserver():
        spawn("forkserver")

    exec(REPORT)
    {way}()
"""
WAYS = ["command", "spawn", *(["forkserver"] if os.name == "posix" else [])]
OPTIONS = [
    (), ("-I",), ("-E",), ("-s",), ("-S",), ("-O",), ("-OO",), ("-B",), ("-b",), ("-W", "error::FutureWarning"),
    ("-X", "utf8"), ("-X", "dev"), ("-X", "pycache_prefix=/dev/null/no"), ("-E", "-s", "-B", "-O", "-W", "ignore"),
    *([("-P",), ("-P", "-S")] if sys.version_info >= (3, 11) else []),
]  # fmt: skip


def run(way, options, tmp_path):
    """Returns what the process and its child print, and which of them ran the `sitecustomize` on PYTHONPATH."""
    witness = tmp_path / "witness"
    (tmp_path / "sitecustomize.py").write_text(f"open({str(witness)!r}, 'a').write('ran ')")
    program = textwrap.dedent(PROGRAM).format(path=[str(ROOT.parent), *filter(os.path.isabs, sys.path)], way=way)
    given = environment("PYTHON") | {"PYTHONPATH": str(tmp_path)}
    printed = output_of(None, *options, "-c", program, timeout=120, env=given)
    return printed.splitlines(), witness.read_text().split() if witness.exists() else []


@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_a_command_has_the_options_of_its_parent(options, tmp_path):
    (here, there), ran = run("command", options, tmp_path)
    assert there == here
    assert len(ran) == (0 if {"-I", "-E", "-S"} & set(options) else 2)


@pytest.mark.parametrize("options", [(), ("-I",), ("-E", "-s")], ids=" ".join)
@pytest.mark.parametrize("way", WAYS[1:])
def test_every_way_to_start_a_process_passes_them_on(way, options, tmp_path):
    (here, there), ran = run(way, options, tmp_path)
    assert there == here
    assert not ran if options else len(ran) >= 2


def test_there_is_no_command_where_no_interpreter_is_known(monkeypatch):
    for missing in (None, ""):
        monkeypatch.setattr(sys, "executable", missing)
        with pytest.raises(RuntimeError, match="cannot find a Python interpreter"):
            processes.python("-c", "pass")
    monkeypatch.undo()
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    with pytest.raises(RuntimeError, match="cannot find a Python interpreter"):
        processes.python("-c", "pass")


# What is not Python, or a command that the user gave.
OTHER_PROGRAMS = {
    "distributed/elastic/workers.py", "system/watchdog.py", "utils/collect_env.py", "viz/convert.py", "viz/drawing.py",
}  # fmt: skip
STARTERS = {
    "os": ("exec", "spawn", "posix_spawn", "system", "popen"),
    "subprocess": ("run", "Popen", "call", "check_call", "check_output", "getoutput", "getstatusoutput"),
}


def test_python_is_started_by_one_function():
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        name, text = path.relative_to(ROOT).as_posix(), path.read_text()
        if name == "system/processes.py" or not re.search(r"\b(os|subprocess|sys)\b", text):
            continue
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                if (node.value.id, node.attr) == ("sys", "executable"):
                    wrong.append(f"{name}:{node.lineno}")
                elif node.attr.startswith(STARTERS.get(node.value.id, ("\0",))) and name not in OTHER_PROGRAMS:
                    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and n.func is node]  # or a type
                    if any("python(" not in ast.get_source_segment(text, call) for call in calls):
                        wrong.append(f"{name}:{node.lineno}")
            elif isinstance(node, ast.ImportFrom) and node.module in STARTERS:  # this test would not see its functions
                wrong.append(f"{name}:{node.lineno}")
    assert not wrong, f"start processes by tensorgrad.system.processes.python: {wrong}"


def test_threads_that_start_processes_do_not_see_each_others_variables():
    """A process with the mark of another thread's job would be killed with that job."""
    wrong = []

    def start(name):
        for _ in range(500):
            with processes.started_with({"TENSORGRAD_TEST": name}):
                if os.environ["TENSORGRAD_TEST"] != name:
                    wrong.append(name)
            if "TENSORGRAD_TEST" in processes.environment():
                wrong.append("left")

    threads = [threading.Thread(target=start, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and "TENSORGRAD_TEST" not in os.environ


@pytest.mark.skipif(os.name != "posix", reason="forks")
def test_threads_of_a_process_forked_meanwhile_can_start_others():
    program = """
        import os, threading
        from tensorgrad.system import processes
        with processes.started_with({"TENSORGRAD_TEST": "1"}):
            if not (child := os.fork()):
                thread = threading.Thread(target=processes.environment, daemon=True)
                thread.start()
                thread.join(60)
                print(thread.is_alive(), os.environ["TENSORGRAD_TEST"], flush=True)
                os._exit(0)
            os.waitpid(child, 0)
        if not (child := os.fork()):
            with processes.started_with({}):
                pass
            print("TENSORGRAD_TEST" in os.environ, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
    """
    assert output_of(program, timeout=120).split() == ["False", "1", "False"]
