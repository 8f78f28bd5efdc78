"""fair-esm: small protein language models of three kinds, trained, and asked for contacts."""

import json
import sys
import tempfile
from argparse import Namespace

import esm
import torch
from esm.data import Alphabet
from esm.model.esm2 import ESM2
from esm.model.msa_transformer import MSATransformer
from shared.training import saved_and_loaded, some, three_steps
from torch import nn

torch.manual_seed(0)
alphabet = Alphabet.from_architecture("ESM-1b")
_, names, tokens = alphabet.get_batch_converter()([("a", "MKTVRQERLK"), ("b", "KALTARQQEV"), ("c", "MKV<mask>L")])


def made():
    return ESM2(num_layers=2, embed_dim=16, attention_heads=2, alphabet=alphabet)


model = made().eval()


def loss_of():
    logits = model(tokens)["logits"]
    return nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten(), ignore_index=alphabet.padding_idx)


losses = three_steps(torch.optim.Adam(model.parameters(), lr=1e-2), loss_of)
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
model = saved_and_loaded(model, made(), folder)
out = model(tokens, repr_layers=[0, 2], return_contacts=True)
numbers = {
    "tokens": tokens.flatten().tolist(), "logits": some(out["logits"]), "contacts": [*out["contacts"].shape, *some(out["contacts"])],
    "first": some(out["representations"][0]), "last": some(out["representations"][2]), "attentions": some(out["attentions"]),
}  # fmt: skip
letters = Alphabet.from_architecture("msa_transformer")
_, _, aligned = letters.get_batch_converter()([("a", "MKTV-RQ"), ("b", "MKAVLRQ"), ("c", "M-TVLRE")])
options = Namespace(
    embed_dim=16, ffn_embed_dim=32, attention_heads=2, layers=1, dropout=0.0, attention_dropout=0.0, activation_dropout=0.0,
    max_tokens_per_msa=2**14, max_positions=64, embed_positions_msa=True, embed_positions_msa_dim=16, max_tokens=2**14, logit_bias=True,
)  # fmt: skip
torch.manual_seed(1)
out = MSATransformer(options, letters).eval()(aligned, repr_layers=[1], return_contacts=True)
numbers |= {"aligned": some(out["logits"]), "rows": some(out["row_attentions"]), "pairs": some(out["contacts"])}
numbers["version"] = [len(names), len(esm.__name__)]
print(json.dumps({"losses": losses, "numbers": numbers}))
