"""Why a row is slower than torch: "theme: name" -> a sentence for the last column of its table."""

_SUM = "the sum takes two threads 22 µs; the call, the handing over and the join of the parts take the rest"

REASONS: dict[str, str] = {
    "modules: Softmax 128×64, forward": "8,192 elements: too few to hand half of them over in Python",
    "reductions: sum 1 M": _SUM,
    "reductions: mean 1 M": _SUM,
    "inference: MNIST ConvNet": "products at the processor's speed in both libraries",
    "inference: GPT 4×128, context 64": "products at the processor's speed in both libraries",
}
