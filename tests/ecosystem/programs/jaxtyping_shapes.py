"""jaxtyping: shapes and dtypes of tensors as annotations that are checked while a model is trained."""

import json

import torch
from jaxtyping import Bool, Float, Float32, Int, Num, Shaped, jaxtyped
from shared.training import some, three_steps
from torch import Tensor, nn

torch.manual_seed(0)


def checks(value, kind):
    return isinstance(value, kind)


@jaxtyped(typechecker=None)
def attention(q: Float[Tensor, "batch seq dim"], k: Float[Tensor, "batch seq dim"]) -> Float[Tensor, "batch seq seq"]:  # noqa: F722
    assert isinstance(q, Float[Tensor, "batch seq dim"]) and isinstance(k, Float[Tensor, "batch seq dim"])
    scores = q @ k.mT
    assert isinstance(scores, Float[Tensor, "batch seq seq"]) and not isinstance(scores, Float[Tensor, "batch seq dim"])
    return scores.softmax(-1)


layer, x = nn.Linear(4, 4), torch.randn(2, 3, 4)
losses = three_steps(
    torch.optim.SGD(layer.parameters(), lr=0.5), lambda: (attention(layer(x), x) - torch.eye(3)).square().mean()
)
integers = torch.arange(6)
asked = [
    checks(x, Float[Tensor, "2 3 4"]), checks(x, Float32[Tensor, "a b c"]), checks(x, Float[Tensor, "a a c"]), checks(x, Float[Tensor, "... 4"]),
    checks(x, Int[Tensor, "..."]), checks(integers, Int[Tensor, " n"]), checks(integers, Num[Tensor, "6"]), checks(x > 0, Bool[Tensor, "*any"]),
    checks(x.half(), Float[Tensor, "..."]), checks(x.half(), Float32[Tensor, "..."]), checks(x.bfloat16(), Float[Tensor, "2 3 _"]),
    checks(x.numpy(), Float[Tensor, "..."]), checks(layer.weight, Float[nn.Parameter, "o i"]), checks(x, Float[nn.Parameter, "..."]),
    checks(torch.tensor(1.0), Float[Tensor, ""]), checks(x, Shaped[Tensor, "2 #3 4"]), checks(x + 0j, Float[Tensor, "..."]),
]  # fmt: skip
numbers = {"asked": [int(a) for a in asked], "layer": some(layer.weight), "name": [str(Float[Tensor, "a b"].__name__)]}
print(json.dumps({"losses": losses, "numbers": numbers}))
