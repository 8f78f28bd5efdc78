"""Writes the results as a table into docs/ecosystem.md, between two markers."""

from __future__ import annotations

from typing import Any

from tests.ecosystem.libraries import LIBRARIES
from tests.support.processes import ROOT

PAGE = ROOT / "docs" / "ecosystem.md"
BEGIN, END = "<!-- the table: written by python -m tests.ecosystem -->", "<!-- end of the table -->"
HEAD = """| library | version | packages | imports | trains | files both ways | own tests passed / passed under torch |
|---|---|---|---|---|---|---|"""


def write(results: dict[str, dict[str, Any]]) -> None:
    """Replaces the table and the list of gaps in the page.

    Args:
        results: What results.json has: for each library its version, outcomes and own tests.
    """
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table(results)}\n{END}{after}", encoding="utf-8")


def table(results: dict[str, dict[str, Any]]) -> str:
    """Returns the table and the known gaps, in Markdown."""
    lines, gaps, parts = [HEAD], [], []
    for library in LIBRARIES:
        result = results.get(library.name)
        if result is None:
            continue
        trains = result.get("trains", {})
        exchanges = result.get("exchanges", {})
        cells = (
            library.name, result["version"], _count(result.get("packages")), result["imports"], _all_of(trains),
            _all_of(exchanges), _own(result.get("own")),
        )  # fmt: skip
        lines.append("| " + " | ".join(_short(cell, 120) for cell in cells) + " |")
        told = [f"{name}: {outcome}" for name, outcome in trains.items() if outcome != "yes"]
        told += [f"{name}: files {outcome}" for name, outcome in exchanges.items() if outcome != "yes"]
        told += [f"{name}: ended otherwise: {how}" for name, how in result.get("exits", {}).items() if how != "yes"]
        told += [*library.gaps, *_left_out(library, result)]
        gaps += [f"- {library.name}: {_short(line, 1000)}" for line in told]
        by_part = (result.get("own") or {}).get("by part", {})
        if len(by_part) > 1:
            counts = (f"{name} {passed}/{of}" for name, (passed, of) in sorted(by_part.items()))
            parts.append(f"- {library.name}: {', '.join(counts)}")
    with_more = [library for library in LIBRARIES if library.name in results and len(library.requirements) > 1]
    if with_more:
        lines += ["", "Installed with it, as its programs use them and it does not ask for them:", ""]
        lines += [f"- {library.name}: {', '.join(library.requirements[1:])}" for library in with_more]
    exits = [told for result in results.values() for told in result.get("exits", {}).values()]
    if exits:
        ended = sum(told == "yes" for told in exits)
        lines += [
            "",
            f"How processes end: {len(exits)} programs ran ten times each; {ended} always ended as under torch.",
        ]
    if parts:
        lines += ["", "Own tests part by part, passed/passed under torch:", "", *parts]
    return "\n".join([*lines, "", "Known gaps:", "", *(gaps or ["- none"])])


def _count(packages: str | None) -> str:
    """Returns how many packages its environment has; a dash where it was not measured in one of its own."""
    return "–" if packages is None else str(packages.count(",") + 1)


def _all_of(outcomes: dict[str, str]) -> str:
    passed = sum(outcome == "yes" for outcome in outcomes.values())
    return "–" if not outcomes else "yes" if passed == len(outcomes) else f"{passed} of {len(outcomes)} programs"


def _own(own: dict[str, Any] | None) -> str:
    if own is None:
        return "not run"
    passed, torch = own["passed"], own["passed under torch"]
    share = f" ({100 * passed / torch:.1f} %)" if torch else ""
    of = f", those of {own['version']}" if "version" in own else ""
    sample = f", one test in {own['one in']}" if "one in" in own else ""
    parts = "; {} of {} parts run".format(*own["parts"]) if "parts" in own else ""
    return f"{passed:,} / {torch:,}{share}{of}{sample}{parts}"


def _left_out(library: Any, result: dict[str, Any]) -> list[str]:
    if not result.get("own") or library.own is None:
        return []
    reasons: dict[str, list[str]] = {}
    for pattern, reason in library.own.left_out.items():
        reasons.setdefault(reason, []).append(f"`{pattern}`")
    told = "; ".join(f"{', '.join(patterns)} ({reason})" for reason, patterns in reasons.items())
    return [f"own tests left out: {told}"] if told else []


def _short(text: str, length: int = 80) -> str:
    text = " ".join(str(text).replace("|", "\\|").split())
    return text if len(text) <= length else text[: length - 1] + "…"
