"""local-attention: a transformer whose tokens look at their neighbours only."""

import json
import sys
import tempfile

import torch
from local_attention import LocalAttention, LocalMHA, LocalTransformer
from shared.training import saved_and_loaded, some, three_steps

torch.manual_seed(0)


def made(**options):
    return LocalTransformer(
        num_tokens=16,
        dim=32,
        depth=2,
        max_seq_len=24,
        local_attn_window_size=4,
        dim_head=8,
        heads=2,
        causal=True,
        **options,
    )


model, tokens = made(), torch.randint(0, 16, (2, 17))
losses = three_steps(torch.optim.SGD(model.parameters(), lr=0.1), lambda: model(tokens, return_loss=True))
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
loaded = saved_and_loaded(model, made(), folder)
numbers = {
    "loaded": some(loaded(tokens)),
    "generated": loaded.generate(tokens[:, :3], 6, temperature=0.0).flatten().tolist(),
}
torch.manual_seed(1)
q, k, v = (torch.randn(2, 2, 16, 8, requires_grad=True) for _ in range(3))
mask = torch.arange(16).expand(2, 16) < torch.tensor([[16], [11]])
for name, options in {
    "causal": {"causal": True}, "forward": {"look_forward": 1}, "exact": {"causal": True, "exact_windowsize": True},
    "xpos": {"causal": True, "use_xpos": True, "dim": 8}, "shared": {"causal": True, "shared_qk": True},
}.items():  # fmt: skip
    out = LocalAttention(window_size=4, autopad=True, **options)(q, k, v, mask=mask)
    numbers[name] = [*some(out), *(g.norm().item() for g in torch.autograd.grad(out.square().sum(), (q, v)))]
attention = LocalMHA(
    dim=32, window_size=4, heads=2, dim_head=8, causal=True, prenorm=True, qk_rmsnorm=True, gate_values_per_head=True
)
numbers["attention"] = some(attention(torch.randn(2, 13, 32)))
numbers["options"] = some(made(use_dynamic_pos_bias=True, use_xpos=True)(tokens))
print(json.dumps({"losses": losses, "numbers": numbers}))
