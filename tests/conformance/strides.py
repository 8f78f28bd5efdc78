"""Strides of results: PyTorch's op database with its inputs laid out in memory in several ways, against torch.

    python -m tests.conformance.strides                   how many agree, by layout
    python -m tests.conformance.strides --write           writes strides.txt
    python -m tests.conformance.strides add nn.functional.gelu     these records, with all that differs

`strides.txt` lists the records (each with a layout) whose strides differ from PyTorch's. It can only shrink: a test
fails for every difference that is not listed there (tests/ops/test_strides.py).
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import torch

from tests.conformance import opdb
from tests.conformance.opdb_bridge import copied, leaves, to_tg, with_gaps

LISTED = Path(__file__).with_name("strides.txt")
SAMPLES = 3  # of each record
DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)  # the first that a record supports
ELEMENTS = 2000


def listed() -> set[str]:
    """The records with a layout, as "record: layout", whose strides are known to differ."""
    lines = LISTED.read_text(encoding="utf-8").splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def _in_order(x: torch.Tensor, order) -> torch.Tensor:
    """The values with the dimensions in this order in memory, outermost first."""
    order = list(order)
    return x.permute(order).contiguous().permute(sorted(range(x.ndim), key=order.__getitem__))


def _transposed(x: torch.Tensor) -> torch.Tensor:
    return _in_order(x, reversed(range(x.ndim)))


def _permuted(x: torch.Tensor) -> torch.Tensor:
    return _in_order(x, [*range(1, x.ndim), *range(min(x.ndim, 1))])


def _channels_last(x: torch.Tensor) -> torch.Tensor:
    if x.ndim not in (4, 5):
        return x.contiguous()
    return x.contiguous(memory_format=torch.channels_last if x.ndim == 4 else torch.channels_last_3d)


def _expanded(x: torch.Tensor) -> torch.Tensor:
    return x[:1].contiguous().expand(x.shape) if x.ndim and x.shape[0] else x


LAYOUTS = {  # what is done to the first tensor among the arguments, and to the others
    "rows": (torch.Tensor.contiguous, torch.Tensor.contiguous),
    "transposed": (_transposed, _transposed),
    "permuted": (_permuted, _permuted),
    "channels_last": (_channels_last, _channels_last),
    "expanded": (_expanded, _expanded),
    "sliced": (with_gaps, with_gaps),
    "first transposed": (_transposed, torch.Tensor.contiguous),
    "others permuted": (torch.Tensor.contiguous, _permuted),
    "channels_last with rows": (_channels_last, torch.Tensor.contiguous),
}


def _laid_out(value, ways: list):
    """Nested values with the first tensor laid out in the first way, and all others in the last."""
    if isinstance(value, torch.Tensor):
        way = ways.pop(0) if len(ways) > 1 else ways[0]
        if value.layout is not torch.strided or value.is_conj() or value.is_neg():
            return value
        return way(value.detach()).requires_grad_(value.requires_grad)
    if isinstance(value, tuple | list):
        items = [_laid_out(v, ways) for v in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return {k: _laid_out(v, ways) for k, v in value.items()} if isinstance(value, dict) else value


def _calls(record):
    dtypes = record.supported_dtypes("cpu")
    dtype = next((d for d in DTYPES if d in dtypes), None)
    return opdb.calls(record, dtype, False, SAMPLES, ELEMENTS) if dtype is not None else []


def _strides(results) -> list:
    return [
        (tuple(r.shape), tuple(r.stride())) if str(r.layout) == "torch.strided" and r.numel() else tuple(r.shape)
        for r in leaves(results)
    ]


def check(record, layouts=tuple(LAYOUTS)) -> dict[str, list[str]]:
    """By layout, the calls whose results have other strides than torch's; no entry for a layout that none could be
    made in."""
    found: dict[str, list[str]] = {}
    for call in _calls(record):
        shapes = []
        for name in layouts:
            given = _laid_out((call.inputs, call.kwargs), list(LAYOUTS[name]))
            seen = [t.stride() for t in leaves(given) if t.layout is torch.strided]
            if seen in shapes:  # the same as another layout
                continue
            shapes.append(seen)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    expected = _strides(call.torch(copied(given)))
                except Exception:  # views of what is laid out so may be impossible
                    continue
                problems = found.setdefault(name, [])
                try:
                    actual = _strides(call.ours(to_tg(given)))
                except Exception as error:
                    if "is zero and using it on lu_solve" in str(error):
                        continue  # rounding decides whether a matrix of equal columns is singular
                    problems.append(f"{type(error).__name__}: {str(error)[:100]}   ({call}; inputs {seen})")
                    continue
            if actual != expected:
                apart = [(e, a) for e, a in zip(expected, actual, strict=False) if e != a][:1] or [(expected, actual)]
                problems.append(f"{apart[0][1]}, expected {apart[0][0]}   ({call}; inputs {seen})")
    return found


def supported():
    """The records that exist here, by name."""
    return {opdb.record_name(r): r for r in opdb.records() if opdb.resolve(r) is not None}


def main(arguments: list[str]) -> None:
    """Checks the records that are named, or all of them."""
    torch.set_num_threads(1)
    write = arguments == ["--write"]
    if write:
        arguments, lines = [], LISTED.read_text(encoding="utf-8").splitlines()
        head, found_apart = [line for line in lines if line.startswith("#")], []
    agreed = total = 0
    by_layout = {name: [0, 0] for name in LAYOUTS}
    for name, record in supported().items():
        if arguments and name not in arguments:
            continue
        try:
            found = check(record)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}")
            continue
        for layout, problems in found.items():
            total += 1
            agreed += not problems
            by_layout[layout][0] += not problems
            by_layout[layout][1] += 1
            if write and problems:
                found_apart.append(f"{name}: {layout}")
            for problem in problems[: None if arguments else 1]:
                print(f"{name}: {layout}: {problem}")
    if write:
        LISTED.write_text("\n".join([*head, *sorted(found_apart)]) + "\n", encoding="utf-8")
    print(f"{agreed} of {total} records x layouts agree")
    for layout, (right, count) in by_layout.items():
        print(f"    {layout}: {right} of {count}")


if __name__ == "__main__":
    main(sys.argv[1:])
