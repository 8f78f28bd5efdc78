"""How much of PyTorch is here: runs the records of its own test databases, and writes what came out.

    python -m tests.conformance                 runs everything; writes docs/coverage.md and passing.txt
    python -m tests.conformance --drop          ... even if records that used to pass no longer do
    python -m tests.conformance --only forward  the records of this section; what is known of the others stays
    python -m tests.conformance --processes 1   (two by default)
    DEVICE=cuda python -m tests.conformance     the same on a GPU; writes build/conformance-cuda.txt only
    ... --processes 16 --seconds 120            no further records after two minutes
    ... --samples 4                             fewer samples of each (20 by default)

Each database is a `Section`. The list of passing records is a ratchet: without `--drop`, nothing is written where a
record on it was lost. The report follows from that list, from what exists and from the written reasons alone, so a
test can tell whether it is current without running the records again (tests/ops/test_ops.py).
"""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.util
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.conformance import workers

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # one each, since the records are shared out among processes

PASSING = Path(__file__).with_name("passing.txt")
REPORT = Path(__file__).parents[2] / "docs" / "coverage.md"
ON_DEVICE = Path(__file__).parents[2] / "build" / f"conformance-{os.environ.get('DEVICE')}.txt"
CHUNK = 4  # records that a process takes at a time


class Entry(NamedTuple):
    """A record: what it tests, or why there is nothing to test."""

    name: str
    family: str
    excluded: str = ""  # the reason, if it is not to be covered
    missing: str = ""  # the reason, if it is to be and is not


class Section(NamedTuple):
    """One of PyTorch's databases, and how its records are run."""

    key: str  # before each of its records in the list of passing ones
    title: str
    about: str
    entries: Callable[[], list[Entry]]
    check: Callable[[str], list[str]]  # a record's name -> its differences
    known: dict[str, tuple[str, ...]]  # a record's name -> (why it differs, texts in its differences)


# --- sections --------------------------------------------------------------------------------------------------------


def _ops() -> Section:
    from tests.conformance import opdb, opdb_families
    from tests.conformance.opdb_known import KNOWN

    return Section(
        key="ops",
        title="Functions and methods of tensors",
        about=f"""\
Each record of `op_db` is run with up to {opdb.MAX_SAMPLES} of its sample inputs in eleven dtypes (float16, bfloat16,
float32, float64, int32, int64, uint8, bool, complex32, complex64, complex128; those that it supports): values, dtypes,
shapes, which results share memory with inputs, strides of views; the method, the in-place form and `out=`; inputs with
gaps between their elements; shapes on the meta device; gradients in float32, float64 and complex128, second gradients
in float64 and complex128; and the type of the exception for each of the record's error inputs. A record passes only
if nothing at all differs.""",
        entries=opdb_families.entries,
        check=opdb_families.check,
        known=KNOWN,
    )


def _forward() -> Section:
    from tests.conformance import forward

    return forward.section()


def _vmap() -> Section:
    from tests.conformance import vmap

    return vmap.section()


def _modules() -> Section:
    from tests.conformance.moduledb import modules_section

    return modules_section()


def _optim() -> Section:
    from tests.conformance.optimdb import optim_section

    return optim_section()


def _schedulers() -> Section:
    from tests.conformance.optimdb import scheduler_section

    return scheduler_section()


SECTIONS: tuple[Callable[[], Section], ...] = (_ops, _forward, _vmap, _modules, _optim, _schedulers)


# --- running ---------------------------------------------------------------------------------------------------------


@functools.cache
def _section(index: int, samples: int | None) -> Section:
    import torch

    from tests.conformance import opdb

    torch.set_num_threads(1)
    opdb.MAX_SAMPLES = samples or opdb.MAX_SAMPLES
    return SECTIONS[index]()


def _run(record: tuple[int, str, int | None]) -> tuple[list[str], bool]:
    """In a process of its own: the differences of a record, and whether the process can go on."""
    from tests.conformance import opdb_bridge

    index, name, samples = record
    section = _section(index, samples)
    if not opdb_bridge.HOME:
        return section.check(name), True
    from tensorgrad.kernels.cuda.runtime import switches

    switches.cudnn.allow_tf32 = False
    problems = section.check(name)
    try:
        opdb_bridge.wait()
    except Exception as error:  # an access to memory out of bounds, say: nothing works on the GPU any more
        return [*problems, f"{type(error).__name__} of the GPU: {error}"], False
    return problems, True


def run(
    processes: int = 2, only: str | None = None, samples: int | None = None, seconds: float | None = None
) -> dict[str, list[str]]:
    """The differences of every record that exists here, as {"section: record": differences}.

    With `seconds`, some records may not have run: the tasks of each section are spread over the whole time.
    """
    tasks, keys = [], {}
    for index, make in enumerate(SECTIONS):
        section = make()
        if only not in (None, section.key):
            continue
        keys[index] = section.key
        names = [e.name for e in section.entries() if not e.excluded and not e.missing]
        groups = [names[i : i + CHUNK] for i in range(0, len(names), CHUNK)]
        tasks += [(i / len(groups), [(index, name, samples) for name in group]) for i, group in enumerate(groups)]
    by_name = importlib.import_module("tests.conformance.__main__")._run  # in a new process, `__main__` is another
    done = workers.share_out(by_name, [task for _, task in sorted(tasks)], processes, seconds)
    return {f"{keys[index]}: {name}": problems for (index, name, _), problems in done}


def passing() -> set[str]:
    """The records that are known to pass, as "section: record"."""
    lines = PASSING.read_text(encoding="utf-8").splitlines() if PASSING.exists() else []
    return {line for line in lines if line and not line.startswith("#")}


# --- the report ------------------------------------------------------------------------------------------------------


class State(NamedTuple):
    """The records of a section by what is known of them."""

    passing: list[Entry]
    partly: dict[Entry, str]  # with the reason
    missing: dict[Entry, str]
    excluded: dict[Entry, str]

    @property
    def included(self) -> int:
        return len(self.passing) + len(self.partly) + len(self.missing)


def state(section: Section, passed: set[str]) -> State:
    """What is known of a section's records, from the list of those that pass."""
    found = State([], {}, {}, {})
    for entry in section.entries():
        if entry.excluded:
            found.excluded[entry] = entry.excluded
        elif entry.missing:
            found.missing[entry] = entry.missing
        elif f"{section.key}: {entry.name}" in passed:
            found.passing.append(entry)
        else:
            found.partly[entry] = section.known.get(entry.name, ("No reason is written down yet.",))[0]
    return found


def report(passed: set[str]) -> str:
    """docs/coverage.md, from the list of passing records."""
    import torch

    parts = [
        f"""\
# What of PyTorch is here

PyTorch's wheel carries the database that PyTorch is tested with. Its records are run here in both libraries, and the
results compared. This page is written by `make conformance`; the database is that of
PyTorch {torch.__version__.partition("+")[0]}.
""",
        *(_section_report(section, state(section, passed)) for section in (make() for make in SECTIONS)),
        f"""\
## How to repeat this

    make conformance                    every record; rewrites this page and tests/conformance/{PASSING.name}
    pytest -m conformance               fails if a record on that list no longer passes, or if this page is stale
    python -m tests.conformance.opdb add sort       what differs in some records
""",
    ]
    return "\n".join(parts)


def _section_report(section: Section, found: State) -> str:
    families = sorted({e.family for e in (*found.passing, *found.partly, *found.missing)})
    rows = []
    for family in families:
        counts = [sum(e.family == family for e in group) for group in (found.passing, found.partly, found.missing)]
        rows.append(f"| {family} | {sum(counts)} | " + " | ".join(str(n) if n else "" for n in counts) + " |")
    totals = (len(found.passing), len(found.partly), len(found.missing))
    share = 100 * len(found.passing) / found.included
    return f"""\
## {section.title}

**{totals[0]} of {found.included} records pass ({share:.1f} %).** Besides, {totals[1]} differ in a known way; missing:
{totals[2]}; left out: {len(found.excluded)}. All are listed below.

{section.about}

| family | records | passing | differing | missing |
|---|---:|---:|---:|---:|
{chr(10).join(rows)}
| **all** | **{found.included}** | {" | ".join(f"**{n}**" for n in totals)} |

### Differing

{_by_reason(found.partly)}

### Missing

{_by_reason(found.missing)}

### Left out

{_by_reason(found.excluded)}

### Passing

{chr(10).join(_names(family, found.passing) for family in sorted({e.family for e in found.passing}))}
"""


def _by_reason(reasons: dict[Entry, str]) -> str:
    """A line for each reason, with the records that it is the reason of."""
    names: dict[str, list[str]] = {}
    for entry, reason in reasons.items():
        names.setdefault(reason, []).append(entry.name)
    lines = (f"- {_listed(group)}: {reason}" for group, reason in sorted((sorted(g), r) for r, g in names.items()))
    return "\n".join(lines) or "None."


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def _names(family: str, entries: list[Entry]) -> str:
    return f"- **{family}**: {_listed([e.name for e in entries if e.family == family])}"


# --- the command -----------------------------------------------------------------------------------------------------


def unexplained(found: dict[str, list[str]], more: dict[str, tuple[str, ...]] | None = None) -> dict[str, list[str]]:
    """Of the differences of all records, those that have no written reason; and reasons that no longer hold.

    Args:
        more: Further reasons, that may also not hold: those of a device.
    """
    sections = {section.key: section for section in (make() for make in SECTIONS)}
    left = {}
    for name, problems in found.items():
        key, _, record = name.partition(": ")
        texts = sections[key].known.get(record, ())[1:]
        known = (*texts, *(more or {}).get(record, ())[1:])
        others = [p for p in problems if not any(text in p for text in known)]
        if texts and not problems and more is None:
            others = ["agrees now: take it out of the known differences"]
        if others:
            left[name] = others
    return left


def write(passed: set[str]) -> None:
    """Stores the list of passing records, and the report."""
    head = "# Records that pass, one to a line: written by `make conformance`, held by `pytest -m conformance`.\n"
    PASSING.write_text(head + "".join(f"{name}\n" for name in sorted(passed)), encoding="utf-8")
    REPORT.write_text(report(passed), encoding="utf-8")


def main_on_device(arguments: argparse.Namespace) -> int:
    """Runs the records on another device, and writes what differs to a file of its own. 1 if anything does."""
    from tests.cuda import known
    from tests.cuda.known import ON_GPU

    start = time.perf_counter()
    found = run(arguments.processes, arguments.only, arguments.samples, arguments.seconds)
    left = {}
    for name, problems in unexplained(found, ON_GPU).items():
        others = [p for p in problems if not any(text in p for text in known.OF_DEVICES)]
        if others:
            left[name] = others
    sections = [section for section in (make() for make in SECTIONS) if arguments.only in (None, section.key)]
    total = sum(not e.excluded and not e.missing for section in sections for e in section.entries())
    agree = sum(not problems for problems in found.values())
    head = (
        f"DEVICE={os.environ['DEVICE']}: {len(found)} of {total} records ran, {agree} agree with PyTorch, "
        f"{len(found) - agree - len(left)} differ in a known way, {len(left)} in another; "
        f"{time.perf_counter() - start:.0f} s"
    )
    lines = [head, ""]
    for name, problems in sorted(left.items()):
        lines += [f"{name}: {len(problems)} differences", *(f"    {problem}" for problem in problems[:8])]
    ON_DEVICE.parent.mkdir(exist_ok=True)
    ON_DEVICE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join([head, *(f"{name}: {problems[0]:.150}" for name, problems in sorted(left.items()))]))
    print(f"written: {ON_DEVICE.parent.name}/{ON_DEVICE.name}")
    return 1 if left else 0


def main() -> int:
    """Runs all records, tells what is new, and writes the list and the report. 1 if anything needs attention."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drop", action="store_true", help="take records that no longer pass off the list")
    parser.add_argument("--only", choices=[make().key for make in SECTIONS], help="run the records of one section")
    parser.add_argument("--processes", type=int, default=2, help="how many to run in (default: 2)")
    parser.add_argument("--samples", type=int, help="with DEVICE: at most so many samples of a record and dtype")
    parser.add_argument("--seconds", type=float, help="with DEVICE: begin no further records after so long")
    arguments = parser.parse_args()
    if importlib.util.find_spec("torch") is None:
        parser.error("torch is not installed here, and it is what everything is compared with")
    if os.environ.get("DEVICE", "cpu") != "cpu":
        return main_on_device(arguments)
    if arguments.samples or arguments.seconds:
        parser.error("--samples and --seconds are for another device: the list of what passes needs everything")
    start = time.perf_counter()
    found = run(arguments.processes, arguments.only)
    known = passing()
    before = {name for name in known if arguments.only in (None, name.partition(": ")[0])}
    now = {name for name, problems in found.items() if not problems}
    left, lost = unexplained(found), sorted(before - now)
    for name, problems in left.items():
        print(f"{name}: {len(problems)} differences without a reason")
        print("".join(f"    {problem}\n" for problem in problems[:3]), end="")
    if now - before:
        print(f"{len(now - before)} pass now that did not:", ", ".join(sorted(now - before)))
    for name in lost:
        print(f"{name}: NO LONGER PASSES" + ("" if name in found else ": there is no such record"))
    print(f"{len(now)} of {len(found)} records agree; {time.perf_counter() - start:.0f} s")
    if lost and not arguments.drop:
        print("nothing was written: mend these, or take them off the list with --drop")
        return 1
    write(now | (known - before))
    print(f"written: {REPORT.parent.name}/{REPORT.name}, {PASSING.parent.name}/{PASSING.name}")
    return 1 if left or lost else 0


if __name__ == "__main__":
    raise SystemExit(main())
