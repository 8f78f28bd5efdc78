"""transformer-lens: activations of a small GPT-2 and a native model, hooks that change them, patching, gradients."""

import json
import tempfile
import warnings

import torch
import transformers as t
from tokenizers import Tokenizer, models, pre_tokenizers
from transformer_lens import patching
from transformer_lens.config import TransformerBridgeConfig
from transformer_lens.model_bridge import TransformerBridge

warnings.simplefilter("ignore")
t.logging.set_verbosity_error()
folder, words = tempfile.mkdtemp(), Tokenizer(models.WordLevel({"[END]": 0} | {f"w{i}": i for i in range(1, 40)}, "w1"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
names = dict.fromkeys(("bos_token", "eos_token", "pad_token", "unk_token"), "[END]")
t.PreTrainedTokenizerFast(tokenizer_object=words, **names).save_pretrained(folder)
torch.manual_seed(0)
sizes = dict(vocab_size=40, n_positions=16, n_embd=16, n_layer=2, n_head=2)
gpt2 = t.GPT2LMHeadModel(t.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)).eval()
gpt2.save_pretrained(folder)
native = TransformerBridgeConfig(
    d_model=16, d_head=8, n_heads=2, d_mlp=32, n_layers=2, n_ctx=16, d_vocab=40, act_fn="gelu", seed=0
)
tokens, other = torch.randint(40, (2, 2, 9)).unbind(0)
losses, numbers = [], {}
models = {
    "gpt2": TransformerBridge.boot_transformers(folder, device="cpu"),
    "native": TransformerBridge.boot_native(native),
}
for name, model in models.items():
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(tokens, return_type="loss")
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval().requires_grad_(False)
    logits, cache = model.run_with_cache(tokens)
    found = {"logits": logits.norm().item(), "keys": len(cache)}
    for hook in ("blocks.0.attn.hook_pattern", "blocks.1.hook_resid_post", "blocks.1.mlp.hook_post"):
        found[hook] = [list(cache[hook].shape), cache[hook].norm().item()]
    found["residual"] = cache.accumulated_resid(layer=-1, incl_mid=True).norm(dim=-1).mean((1, 2)).tolist()

    def without_a_head(value, hook):
        value = value.clone()
        value[:, :, 1] = 0
        return value

    changed = model.run_with_hooks(tokens, fwd_hooks=[("blocks.0.attn.hook_z", without_a_head)])
    found["without a head"] = (changed - logits).norm().item()
    metric = lambda logits: logits[:, -1, 3].sum()
    found["patched"] = patching.get_act_patch_resid_pre(model, other, cache, metric).tolist()
    found["weights"] = [model.W_Q.norm().item(), model.W_O.norm().item(), model.QK.norm().sum().item()]
    numbers[name] = list(map(list, found.items()))
print(json.dumps({"losses": losses, "numbers": numbers}))
