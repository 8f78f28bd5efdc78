"""Reasons why rows are slower than torch: "theme: name" -> a sentence for the last column of the table."""

_MEMORY = "what memory gives: 12 bytes an element"

REASONS: dict[str, str] = {
    "modules: Softmax 128×64, forward": "8,192 elements: of 8 µs two threads take 4 for them, Python the rest",
    "reductions: sum 1 M": "to read 4 MB takes two threads 25 µs; the call and the join of the parts take the rest",
    "pointwise: add 1 M": _MEMORY,
    "pointwise: mul 1 M": _MEMORY,
    "pointwise: add 10 M": _MEMORY,
    "pointwise: mul 10 M": _MEMORY,
}
