"""Reasons why rows are slower than torch: "theme: name" -> a sentence for the last column of the table."""

_MEMORY = "what memory gives: 12 bytes an element"

_PRODUCTS = "products take most of the time, and 1.04 to 1.24 of torch's (MKL), by their shape"

REASONS: dict[str, str] = {
    "libraries: GPT-2 124 M, 1×128, forward": _PRODUCTS,
    "libraries: BERT-base, 1×128": _PRODUCTS,
    "libraries: ViT-S/16, one image": _PRODUCTS,
    "libraries: Llama-like 15 M, 64 tokens": "reading the weights for one row takes 1.23 of torch's time on one thread",
    "modules: Softmax 128×64, forward": "8,192 elements: of 6.5 µs one thread takes 3 for them, Python the rest",
    "reductions: sum 1 M": "to read 4 MB takes two threads 25 µs; the call and the join of the parts take the rest",
    "pointwise: add 1 M": _MEMORY,
    "pointwise: mul 1 M": _MEMORY,
    "pointwise: add 10 M": _MEMORY,
    "pointwise: mul 10 M": _MEMORY,
}
