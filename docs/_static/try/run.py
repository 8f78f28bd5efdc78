"""What the page's interpreter runs before a program, once, and then for each program: `run()`."""

import sys

for finder in sys.path_importer_cache.values():  # first of all: the interpreter as it comes knows another library
    if finder is not None:
        finder.invalidate_caches()

# Loaded once, and kept for all runs.
import ast
import linecache
import os
import random
import traceback

import numpy

import tensorgrad
import tensorgrad.viz

programs = set()  # the names of those that have run
scope = {"__name__": "__main__"}

os.makedirs("/shown", exist_ok=True)
os.chdir("/home")
sys.stdout.reconfigure(line_buffering=True)


def display(*values):
    """Shows values below what was printed: as pictures where they have one, else as text."""
    for value in values:
        if isinstance(value, os.PathLike) and os.path.exists(value):
            continue  # its picture was shown when it was written
        for kind in ("html", "svg"):
            made = getattr(value, f"_repr_{kind}_", lambda: None)()
            if made is not None:
                with open(f"/shown/{len(os.listdir('/shown')) + 1}.{kind}", "w") as file:
                    file.write(made)
                break
        else:
            print(repr(value))


def shortened(error):
    """The parts of a traceback that are in the program itself; of a mistake in its text, that alone."""
    seen = traceback.TracebackException.from_exception(error)
    waiting = [seen]
    while waiting:
        one = waiting.pop()
        one.stack[:] = [frame for frame in one.stack if frame.filename in programs]
        waiting += [other for other in (one.__cause__, one.__context__, *(one.exceptions or ())) if other is not None]
    return "".join(seen.format())


def run(name):
    """Runs a file in /home. What its last line is worth is shown, as in a notebook. Returns 0; 1 after an error."""
    random.seed()
    numpy.random.seed()
    with open(name) as file:
        source = file.read()
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    programs.add(name)
    scope.update(__file__=name, display=display)
    try:
        body = ast.parse(source, name).body
        last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), name, "exec"), scope)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), name, "eval"), scope)
            if value is not None:
                display(value)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return 0 if end.code in (None, 0) else 1
    except BaseException as error:
        sys.stderr.write(shortened(error))
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0
