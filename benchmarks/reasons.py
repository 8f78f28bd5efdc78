"""Why a row is slower than torch: "theme: name" -> a sentence for the last column of its table."""

_SUM = "to read 4 MB takes two threads 22 µs; the call and the join of the parts take the rest"

REASONS: dict[str, str] = {
    "modules: Softmax 128×64, forward": "8,192 elements: of 6 µs two threads take 3 for them, Python the rest",
    "reductions: sum 1 M": _SUM,
    "reductions: mean 1 M": _SUM,
    "pointwise: add 1 M": "12 MB: what memory gives",
    "inference: MNIST ConvNet": "14 layers of 3 to 30 µs: half the time is Python between kernels",
}
