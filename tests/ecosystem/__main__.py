"""Runs libraries built on PyTorch with tensorgrad in place of torch, and writes the table of docs/ecosystem.md.

python -m tests.ecosystem                     each library: import and programs in a new environment of its own, which
                                              is deleted afterwards (those not done before)
python -m tests.ecosystem own --sources DIR   their own tests, in checkouts that you have in DIR
python -m tests.ecosystem record              the programs under torch: writes tests/ecosystem/expected/
python -m tests.ecosystem exchange            what a program saves under torch is loaded under tensorgrad, and back
python -m tests.ecosystem exits               each program ten times: how its processes end
python -m tests.ecosystem together            all libraries in one environment, with packages that change others by
                                              being installed
python -m tests.ecosystem leaving             exports architectures of timm and torchvision (docs/leaving.md)
python -m tests.ecosystem files               their files, written by one library and loaded by the other
python -m tests.ecosystem onnx                their ONNX files beside PyTorch's: sizes, and time in onnxruntime
python -m tests.ecosystem table               only writes the table again, from tests/ecosystem/results.json
python -m tests.ecosystem delete              deletes the environments that own, record, exchange and exits keep

`--only NAME` takes a library, a program or an architecture (several times); what it names runs again, even if it was
done before. With `--exits`, the first form and `together` run each program ten times more, in the same environment.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.ecosystem import environments, files, leaving, onnx_files, own, results, running, table, together
from tests.ecosystem.environments import Environment, Unavailable, alone, environment, real_torch
from tests.ecosystem.libraries import LIBRARIES, Library


def main(arguments: list[str]) -> int:
    """Does what the arguments say. Returns 0 if everything went well."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.ecosystem", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    choices = (*ACTIONS, "together", "leaving", "files", "onnx", "table", "delete")
    parser.add_argument("what", nargs="?", choices=choices, default="run")
    parser.add_argument("--only", action="append", metavar="NAME", help="a library or a program")
    parser.add_argument("--sources", type=Path, metavar="FOLDER", help="the folder with checkouts of the libraries")
    parser.add_argument("--again", action="store_true", help="also what was done before")
    parser.add_argument("--exits", action="store_true", help="runs each program ten times more, to see how it ends")
    parser.add_argument("--failed", action="store_true", help="of own tests, also those that failed before")
    options = parser.parse_args(arguments)
    if options.what == "leaving":
        return leaving.run(options.only or [])
    if options.what == "files":
        return files.run(options.only or [])
    if options.what == "onnx":
        return onnx_files.run(options.only or [])
    chosen = [(library, programs) for library in LIBRARIES if (programs := _chosen(library, options.only)) is not None]
    if not chosen:
        parser.error(f"no library or program is called {options.only}")
    if options.what == "own" and options.sources is None:
        parser.error("own needs --sources")
    if options.what == "table":
        table.write(results.read())
        return 0
    if options.what == "together":
        failures = together.run(options.only, exits=options.exits)
        print(*failures, sep="\n")
        return 1 if failures else 0
    if options.what == "delete":
        print("deleting:", _size())
        environments.delete()
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # temporary folders are deleted then, too
    failures = []
    for library, programs in _progress(chosen):
        try:
            failures += ACTIONS[options.what](library, programs, options) or []
        except (Unavailable, FileNotFoundError) as error:
            failures.append(f"{library.name}: {error}")
    print(*failures, sep="\n") if failures else None
    print(f"{_size()}; to delete them: python -m tests.ecosystem delete", file=sys.stderr)
    return 1 if failures else 0


def _size() -> str:
    number, size = environments.kept()
    return f"{number} environments in {environments.cache()} take {size / 1e9:.1f} GB"


def _chosen(library: Library, only: list[str] | None) -> tuple[str, ...] | None:
    """Returns the programs of a library that were asked for; None if it was not."""
    if only is None or library.name in only:
        return library.programs
    return tuple(name for name in library.programs if name in only) or None


def _progress(chosen: list[Any]) -> Any:
    try:
        from tqdm import tqdm
    except ImportError:
        return chosen
    bar = tqdm(chosen, unit="library", file=sys.stderr)
    return (bar.set_postfix_str(item[0].name) or item for item in bar)


def _run(library: Library, programs: tuple[str, ...], options: argparse.Namespace) -> list[str]:
    before = results.read().get(library.name, {})
    if not (options.only or options.again) and _is_done(library, before):
        return []
    with alone(library) as python:
        result = {"version": python.version(library.name), "imports": "yes", "trains": {}}
        result["packages"] = ", ".join(python.packages())
        try:
            running.imports(python, library)
        except running.Failed as error:
            result["imports"] = str(error)
        for name in programs:
            try:
                running.compare(name, running.run_program(python, name))
                result["trains"][name] = "yes"
            except running.Failed as error:
                result["trains"][name] = str(error).removeprefix(f"{name}: ")
        if options.exits:
            result["exits"] = {name: running.endings(python, name) for name in programs}
    results.keep(library, result)
    outcomes = [("import", result["imports"]), *result["trains"].items()]
    outcomes += [(f"{name} ends", told) for name, told in result.get("exits", {}).items()]
    return [f"{library.name}: {what}: {told}" for what, told in outcomes if told != "yes"]


def _is_done(library: Library, result: dict[str, Any]) -> bool:
    return "packages" in result and set(result.get("trains", {})) == set(library.programs)


def _record(library: Library, programs: tuple[str, ...], options: argparse.Namespace) -> list[str]:
    failures, python = [], environment(library)
    for name in programs:
        if (running.EXPECTED / f"{name}.json").exists() and not (options.only or options.again):
            continue
        try:
            running.record(name, running.run_program(python, name, torch=real_torch()))
        except running.Failed as error:
            failures.append(f"{library.name}: {name} under torch: {error}")
    return failures


def _exchange(library: Library, programs: tuple[str, ...], options: argparse.Namespace) -> list[str]:
    failures, python = [], environment(library)
    exchanges = {}
    for name in filter(running.takes_a_folder, programs):
        told = "yes"
        for order in ((real_torch(), None), (None, real_torch())):
            with tempfile.TemporaryDirectory() as folder:
                try:
                    for torch in order:
                        running.compare(name, running.run_program(python, name, torch, folder))
                except running.Failed as error:
                    told = f"{'written by torch' if order[0] else 'written by tensorgrad'}: {error}"
                    failures.append(f"{library.name}: {name}: {told}")
        exchanges[name] = told
    results.keep(library, _first(library, python) | {"exchanges": exchanges})
    return failures


def _exits(library: Library, programs: tuple[str, ...], options: argparse.Namespace) -> list[str]:
    python, before = environment(library), results.read().get(library.name, {}).get("exits", {})
    chosen = [name for name in programs if options.only or options.again or name not in before]
    found = {name: running.endings(python, name) for name in chosen}
    if found:
        results.keep(library, _first(library, python) | {"exits": found})
    return [f"{library.name}: {name}: {told}" for name, told in found.items() if told != "yes"]


def _own(library: Library, programs: tuple[str, ...], options: argparse.Namespace) -> list[str]:
    if library.own is None or not (options.sources / library.own.repository.partition("/")[2]).exists():
        return [f"{library.name}: no own tests, or no checkout"] if options.only else []
    python = environment(library, own=True)
    version = python.version(library.name)
    torch, ours = (own.outcomes_file(library, version, side) for side in ("torch", "tensorgrad"))
    if options.again:
        ours.unlink(missing_ok=True)
    elif options.failed and ours.exists():
        own.forget_failures(ours)
    parts = library.own.tests
    for tests in own.run(library.own, python, options.sources, [(torch, real_torch()), (ours, None)]):
        told = own.summary(own.read(ours), own.read(torch), parts)
        print(f"{library.name}: {tests}: {told['passed']} of {told['passed under torch']}", file=sys.stderr)
        first = _first(library, python)
        if version != (first or results.read()[library.name])["version"]:
            told["version"] = version
        if (sample := own.sample(library.own, ours)) != "1":
            told["one in"] = sample
        done = own.done(parts, ours)
        if done < len(parts):
            told["parts"] = [done, len(parts)]
        results.keep(library, first | {"own": told})
    return []


def _first(library: Library, python: Environment) -> dict[str, Any]:
    """Returns what is known of a library that has no results yet, but an environment."""
    if library.name in results.read():
        return {}
    return {"version": python.version(library.name), "imports": "yes"}


ACTIONS = {"run": _run, "record": _record, "own": _own, "exchange": _exchange, "exits": _exits}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
