"""Transformers of x-transformers: a decoder that generates, an encoder-decoder, and many options."""

import json
import os
import sys
import tempfile

import torch
from x_transformers import (
    AutoregressiveWrapper,
    ContinuousTransformerWrapper,
    Decoder,
    Encoder,
    TransformerWrapper,
    XTransformer,
)

torch.manual_seed(0)


def decoder(**options):
    return TransformerWrapper(num_tokens=20, max_seq_len=32, attn_layers=Decoder(dim=32, depth=2, heads=2, **options))


losses, numbers = [], {}
variants = {
    "plain": {},
    "llama": dict(rotary_pos_emb=True, use_rmsnorm=True, ff_glu=True, ff_swish=True, ff_no_bias=True, attn_kv_heads=1),
    "alibi": dict(alibi_pos_bias=True, attn_flash=False, sandwich_norm=True),
    "flash": dict(attn_flash=True, rel_pos_bias=False, attn_qk_norm=True, shift_tokens=1),
}
tokens = torch.randint(20, (2, 17))
for name, options in variants.items():
    model = AutoregressiveWrapper(decoder(**options))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(tokens)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    numbers[name] = model.generate(tokens[:, :3], 6, temperature=0.0).flatten().tolist()
    numbers[f"{name} sampled"] = model.generate(tokens[:, :3], 6).flatten().tolist()

model = XTransformer(
    dim=16, enc_num_tokens=12, enc_depth=1, enc_heads=2, enc_max_seq_len=16, dec_num_tokens=12, dec_depth=1,
    dec_heads=2, dec_max_seq_len=16,
)  # fmt: skip
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
source, target = torch.randint(12, (2, 9)), torch.randint(12, (2, 7))
for _ in range(3):
    optimizer.zero_grad()
    loss = model(source, target, mask=torch.ones_like(source).bool())
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
file = os.path.join(folder, "transformer.pt")
if not os.path.exists(file):
    torch.save(model.state_dict(), file)
expected = model(source, target).item()
with torch.no_grad():
    for parameter in model.parameters():
        parameter.zero_()
model.load_state_dict(torch.load(file))
assert abs(model(source, target).item() - expected) < 1e-5
series = ContinuousTransformerWrapper(dim_in=4, dim_out=2, max_seq_len=8, attn_layers=Encoder(dim=16, depth=1, heads=2))
numbers["series"] = series(torch.randn(1, 8, 4))[0, :2].tolist()
print(json.dumps({"losses": losses, "numbers": numbers}))
