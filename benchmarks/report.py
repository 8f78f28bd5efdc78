"""Formats the figures as Markdown tables, and stores them."""

from __future__ import annotations

import datetime
import json
import math
import os
import platform
from pathlib import Path
from typing import Any

from benchmarks.measure import PAIRS
from benchmarks.processes import COLUMNS
from benchmarks.reasons import REASONS
from benchmarks.rows import THEMES

PAGES = Path(__file__).parent.parent / "docs" / "benchmarks"  # one page a command
FRONT = Path(__file__).parent.parent / "BENCHMARK.md"  # the page that shows a few rows of the first
README = Path(__file__).parent.parent / "README.md"
RESULTS = Path(__file__).parent / "results.json"
BUSY = 0.1  # the fraction of the processors that other programs may use
VARIATION = 1.03  # ratios up to this factor above the limit, or with a quartile below it, are within the variation
AIMS: dict[str, tuple[float, float | None]] = {  # pair -> geometric mean, limit of each row
    "fast/torch": (0.7, 1.0),
    "fast/raised": (1.0, None),
    "numpy/torch": (2.0, 6.0),
}
SMALL_AIM = 0.6  # the aim for fast/torch with small models

HEAD = (
    "| row | fast | NumPy | torch | torch raised | fast/torch | fast/raised | NumPy/torch | |\n"
    "|---|---:|---:|---:|---:|---:|---:|---:|---|"
)


def processor() -> str:
    """Returns the processor's name, as far as the system provides it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def facts(answers: dict[str, dict], arguments) -> dict[str, Any]:
    """Collects facts about the machine and the measurement."""
    versions = {"Python": platform.python_version()}
    for answer in answers.values():
        versions.update({name: value for name, value in answer.items() if name not in ("threads", "fast")})
    return {
        "date": str(datetime.date.today()),
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": arguments.threads,
        "clock": arguments.clock,
        "quick": arguments.quick,
        "versions": versions,
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def facts_text(facts: dict[str, Any]) -> str:
    """Formats the facts as a sentence."""
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    threads = "one thread" if facts["threads"] == 1 else f"{facts['threads']} threads"
    text = f"{facts['date']}, {facts['processor']}, {facts['cores']} cores, {threads}; {versions}"
    if facts["clock"] != "wall":
        text += f"; {facts['clock']} time, not wall-clock time"
    if facts["quick"]:
        text += "; quick: fewer and shorter rounds"
    if facts["load"] is not None:
        text += f"; load of the machine before: {facts['load']}"
    if "others" in facts:
        text += f", used by other programs during the run: {facts['others']:.0%}"
    return text


def remark(facts: dict[str, Any]) -> str:
    """Returns a warning if the machine was busy, else ""."""
    if facts.get("others", 0.0) <= BUSY:
        return ""
    return (
        f"**The machine was busy: other programs used {facts['others']:.0%} of its processors during the run.** "
        "Threads that wait for each other then lose even more time, so only `--threads 1 --clock cpu` is reliable."
    )


def duration(seconds: float | None) -> str:
    """Formats a time with its unit, with three digits."""
    if seconds is None:
        return "–"
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def met(ratio: dict[str, float], limit: float = 1.0) -> bool:
    """Returns whether a ratio is at or below the limit, allowing for variation."""
    return ratio["median"] <= VARIATION * limit or ratio["low"] <= limit


def line(found: dict[str, Any]) -> str:
    """Formats a row of a table."""
    times = [duration(found.get("seconds", {}).get(column)) for column in ("fast", "numpy", "torch", "raised")]
    cells = []
    for pair in PAIRS:
        ratio = found.get("ratios", {}).get(pair)
        text = "–" if ratio is None else f"{ratio['median']:.2f} ({ratio['low']:.2f}–{ratio['high']:.2f})"
        cells.append(f"**{text}**" if pair == "fast/torch" and ratio is not None and not met(ratio) else text)
    remarks = [f"**{column}: {text}**" for column, text in found["wrong"].items()]
    remarks += [f"**not compiled: {text}**" for text in found.get("without kernel", {}).values()]
    remarks += [REASONS.get(f"{found['theme']}: {found['name']}", "")]
    return f"| {found['name']} | {' | '.join(times + cells)} | {'; '.join(filter(None, remarks))} |"


def geometric_mean(values: list[float]) -> float:
    """Returns the n-th root of the product."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def means(found: list[dict[str, Any]]) -> str:
    """Formats the geometric mean of each pair and the number of rows above its limit, with their aims."""
    lines = []
    for pair, (mean_aim, limit) in AIMS.items():
        ratios = [row["ratios"][pair] for row in found if pair in row.get("ratios", {})]
        if ratios:
            values = [ratio["median"] for ratio in ratios]
            text = f"- {pair}: geometric mean {geometric_mean(values):.2f} over {len(values)} rows (aim: {mean_aim})"
            if limit is not None:
                over = sum(not met(ratio, limit) for ratio in ratios)
                text += f"; {over} rows above {limit}, the largest {max(values):.2f}"
            lines.append(text)
    small = [row for row in found if row["is_small_model"] and "fast/torch" in row.get("ratios", {})]
    if small:
        cells = ", ".join(f"{row['name']} {row['ratios']['fast/torch']['median']:.2f}" for row in small)
        lines.append(f"- small models (aim: {SMALL_AIM}): {cells}")
    wrong = [f"{row['theme']}: {row['name']}" for row in found if row["wrong"]]
    if wrong:
        lines.append(f"- computed something else, or not at all: {', '.join(wrong)}")
    return "\n".join(lines)


def tables(found: list[dict[str, Any]]) -> str:
    """Formats a table for each theme."""
    parts = []
    for theme, title in THEMES.items():
        rows = [line(row) for row in found if row["theme"] == theme]
        if rows:
            parts.append("\n".join([f"## {title}\n", HEAD, *rows]))
    return "\n\n".join(parts)


def seconds_table(found: dict[str, dict[str, float]]) -> str:
    """Formats the import times, one library per row."""
    lines = ["| process | median s | quartiles |", "|---|---:|---:|"]
    for library, figures in found.items():
        lines.append(f"| `import {library}` | {figures['median']:.3f} | {figures['low']:.3f}–{figures['high']:.3f} |")
    return "\n".join(lines)


def first_step_table(found: dict[str, dict[str, float]]) -> str:
    """Formats the parts of the first step, with one row for each column of the other tables, and the aims."""
    names = list(next(iter(found.values())))
    lines = [f"| | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]
    lines += [f"| {title} | {' | '.join(duration(part[name]) for name in names)} |" for title, part in found.items()]
    fast = next((part for title, part in found.items() if title == COLUMNS["fast"].title), None)
    if fast:
        later, limit = fast["import to first step"] - fast["import"], 0.3
        met = "met" if later <= limit else "**missed**"
        lines += ["", f"- from the import to the end of the first step: {later:.2f} s (aim: {limit:g} s, {met})"]
    return "\n".join(lines)


def memory_table(found: dict[str, dict[str, dict[str, float]]]) -> str:
    """Formats the memory, one training step per row: later steps, the first steps, and the whole process."""
    columns = [name for name in ("fast", "numpy", "torch") if any(name in row for row in found.values())]
    titles = {"fast": "fast", "numpy": "NumPy", "torch": "torch"}
    kinds = ("later steps", "first steps", "whole")
    heads = [f"{kind}: {titles[name]}" if name == columns[0] else titles[name] for kind in kinds for name in columns]
    lines = [f"| MB | {' | '.join(heads)} | fast/torch, later steps |", f"|---|{'---:|' * (len(heads) + 1)}"]
    for row, parts in found.items():
        cells = [f"{parts[name][kind]:.1f}" for kind in kinds for name in columns]
        ratio = "–"
        if "fast" in parts and "torch" in parts:
            value = parts["fast"]["later steps"] / max(parts["torch"]["later steps"], 0.01)
            ratio = f"{value:.2f}" if value <= 1.0 else f"**{value:.2f}**"
        lines.append(f"| {row} | {' | '.join(cells)} | {ratio} |")
    return "\n".join(lines)


def peers_table(found: list[dict[str, Any]]) -> str:
    """Formats the rows of other libraries: the time and its ratio to torch's, or "–" if a row cannot run."""
    titles = {name: title for row in found for name, title in row["titles"].items()}
    lines = [f"| row | {' | '.join(titles.values())} |", f"|---|{'---:|' * len(titles)}"]
    remarks = []
    for row in found:
        theirs, cells = row["seconds"].get("torch"), []
        for name in titles:
            own = row["seconds"].get(name)
            ratio = f" ({own / theirs:.2f})" if own and theirs and name != "torch" else ""
            cells.append(duration(own) + ratio)
        lines.append(f"| {row['name']} | {' | '.join(cells)} |")
        remarks += [f"- {titles[name]}, {row['name']}: {text}" for name, text in row["wrong"].items() if name in titles]
    return "\n".join([*lines, *([""] if remarks else []), *remarks])


def transforms_table(found: dict[str, Any]) -> str:
    """Formats the rows of benchmarks/transforms.py: times, ratios to torch's, and to the function itself."""
    rows = found["rows"]
    with_jax = any("jax" in times for times in rows.values())
    heads = ["tensorgrad", "torch.func", "ratio", "compiled", "compiled ÷ tensorgrad"]
    heads += ["JAX, compiled"] if with_jax else []
    heads += ["by hand", "by hand ÷ tensorgrad", "÷ forward", "torch.func ÷ forward"]
    lines = [found["about"], "", f"| | {' | '.join(heads)} |", f"|---|{'---:|' * len(heads)}"]
    for name, times in rows.items():
        own, ratio = times["tensorgrad"], times["tensorgrad"] / times["torch"]
        cells = [duration(own), duration(times["torch"]), f"{ratio:.2f}" if ratio <= VARIATION else f"**{ratio:.2f}**"]
        compiled = times.get("compiled")
        cells += [duration(compiled), f"{compiled / own:.2f}" if compiled else ""]
        cells += [duration(times.get("jax"))] if with_jax else []
        cells += [duration(times["by hand"]), f"{times['by hand'] / own:.1f}"]
        cells += ["", ""]
        if "forward" in times:
            cells[-2:] = f"{own / times['forward']:.2f}", f"{times['torch'] / times['torch forward']:.2f}"
        lines.append(f"| {name} | {' | '.join(cells)} |")
    ratios = [times["tensorgrad"] / times["torch"] for times in rows.values()]
    over = sum(ratio > VARIATION for ratio in ratios)
    mean = f"Geometric mean of the ratios: {geometric_mean(ratios):.2f} (aim: 0.7); above 1.0: {over}."
    return "\n".join([*lines, "", mean])


# The rows of the front page, by theme and name.
SHOWN = (
    "modules: Linear 64×1024→2048, forward and backward",
    "modules: Conv2d 8×32×64²→64, forward and backward",
    "layers: LayerNorm 2048×512, forward and backward",
    "layers: CrossEntropy 1024×1000, forward and backward",
    "layers: attention 8×8×512×64, causal, forward and backward",
    "pointwise: add 16",
    "pointwise: add 1 M",
    "reductions: sum 1 M",
    "training: XOR 2-8-2, batch 4, SGD",
    "training: MLP 784-128-10, batch 32, SGD",
    "training: MNIST ConvNet, batch 64, Adam",
    "training: ResNet-18 32×32, batch 32, SGD",
    "training: GPT 4×128, context 64, batch 12, AdamW",
    "training: LSTM characters, 32×64, Adam",
    "inference: GPT 4×128, context 64",
)
# The rows of README.md, and how they are called there.
FIRST_SEEN = {
    "XOR 2-8-2, batch 4, SGD": "XOR, a training step",
    "MLP 784-128-10, batch 32, SGD": "MLP 784-128-10, batch 32, a training step",
    "MNIST ConvNet, batch 64, Adam": "MNIST ConvNet, batch 64, a training step",
    "GPT 4×128, context 64, batch 12, AdamW": "GPT of 4 layers of 128, a training step",
    "LSTM characters, 32×64, Adam": "LSTM of characters, a training step",
    "ResNet-18 32×32, batch 32, SGD": "ResNet-18, batch 32, a training step",
}
# Markers -> their page, where that is not of the same name.
PAGE_OF = dict.fromkeys(("first-step", "memory", "imports", "peers"), "tables") | {
    "sparse without fast": "sparse", "small_numbers_memory": "small_numbers",
    "small_numbers_perplexity": "small_numbers",
}  # fmt: skip
# Part of benchmarks.fresh -> its markers in the pages, the function for its table.
PARTS: dict[str, tuple[str, Any]] = {
    "import time": ("imports", seconds_table),
    "first step of the MNIST ConvNet": ("first-step", first_step_table),
    "peak memory of training": ("memory", memory_table),
    "other libraries": ("peers", peers_table),
    "function transforms": ("transforms", transforms_table),
}


def store(name: str, text: str, title: str = "") -> None:
    """Replaces the text between markers in a page; missing markers are added at its end, under a title."""
    page = PAGES / f"{PAGE_OF.get(name, name)}.md"
    if not page.exists():
        page.write_text(title.removeprefix("#") + "\n", encoding="utf-8")
        title = ""
    _replace(page, name, text, title)


def _replace(page: Path, name: str, text: str, title: str) -> None:
    start, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    whole = page.read_text(encoding="utf-8")
    if start not in whole:
        whole += f"\n{title}\n\n{start}{end}\n" if title else f"\n{start}{end}\n"
    head, _, rest = whole.partition(start)
    page.write_text(f"{head}{start}{text}\n{end}{rest.partition(end)[2]}", encoding="utf-8")
    print(f"written to {page.name}")


def front(facts: dict[str, Any], found: list[dict[str, Any]]) -> str:
    """Formats what the front page shows: the geometric means, and a few rows."""
    rows = [row for row in found if f"{row['theme']}: {row['name']}" in SHOWN]
    lead = "\n\n".join(part for part in (facts_text(facts), remark(facts), means(found)) if part)
    return "\n".join([lead, "", HEAD, *map(line, rows)])


def summary(found: list[dict[str, Any]]) -> str:
    """Formats the ratios that README.md shows."""
    pairs = ("fast/torch", "numpy/torch", "fast/raised")
    lines = [
        "| | with compiled kernels | with NumPy alone | compiled, PyTorch keeping memory |",
        "|---|---:|---:|---:|",
    ]
    measured = {row["name"]: row["ratios"] for row in found if row.get("ratios")}
    for name, title in FIRST_SEEN.items():
        if name in measured:
            cells = [f"{measured[name][pair]['median']:.2f}" for pair in pairs]
            lines.append(f"| {title} | {' | '.join(cells)} |")
    every = {pair: [ratios[pair]["median"] for ratios in measured.values() if pair in ratios] for pair in pairs}
    means = " | ".join(f"{geometric_mean(values):.2f}" for values in every.values())
    return "\n".join([*lines, f"| geometric mean of {len(every['fast/torch'])} rows | {means} |"])


def write(facts: dict[str, Any], found: list[dict[str, Any]], parts: dict[str, Any]) -> None:
    """Stores the tables in the pages and the figures in results.json."""
    lead = "\n\n".join(part for part in (facts_text(facts), remark(facts), means(found)) if part)
    store("tables", f"{lead}\n\n{tables(found)}", "## Tables: `python -m benchmarks`")
    for part, figures in parts.items():
        mark, table = PARTS[part]
        store(mark, table(figures), f"## {part[0].upper()}{part[1:]}")
    _replace(FRONT, "front", front(facts, found), "")
    _replace(README, "speed", summary(found), "")
    RESULTS.write_text(json.dumps({"facts": facts, "rows": found, **parts}, indent=1, ensure_ascii=False) + "\n")
