"""Adapts a tiny Llama with LoRA (peft), offline, in seconds: first it learns to count up, then an adapter counts down.

    python -m tensorgrad.run examples/libraries/lora.py

This is an ordinary PyTorch program. It needs transformers, peft and jinja2. Only the adapter is trained and saved,
a sixth of this model (of a large one a thousandth), and it can be taken off again.
"""

import os
import sys
import tempfile

try:
    import peft
    import torch
    import transformers
except ImportError as error:
    sys.exit(f"{error}: this example needs transformers, peft and jinja2")

transformers.logging.set_verbosity_error()
torch.manual_seed(0)
NUMBERS = 40
CONFIG = transformers.LlamaConfig(
    vocab_size=NUMBERS, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    max_position_embeddings=32, pad_token_id=None, bos_token_id=None, eos_token_id=None,
)  # fmt: skip


def sequences(step):
    """A batch of sequences that count in steps, modulo NUMBERS."""
    return (torch.randint(0, NUMBERS, (32, 1)) + step * torch.arange(12)) % NUMBERS


def train(model, step, steps, rate):
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=rate)
    for _ in range(steps):
        batch = sequences(step)
        optimizer.zero_grad()
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        optimizer.step()
    return loss.item()


def goes_on(model):
    """What the model writes after 20, 20 ± 1: the numbers that follow."""
    start = torch.tensor([[20, 21]]) if model.counts_up else torch.tensor([[20, 19]])
    return model.generate(input_ids=start, max_new_tokens=5, do_sample=False)[0].tolist()


model = transformers.LlamaForCausalLM(CONFIG)
train(model, step=1, steps=60, rate=5e-3)
model.counts_up = True
print("the model counts up:        ", goes_on(model))

adapted = peft.get_peft_model(
    model, peft.LoraConfig(task_type="CAUSAL_LM", r=8, lora_alpha=32, target_modules="all-linear")
)
trained, total = adapted.get_nb_trainable_parameters()
train(adapted, step=-1, steps=80, rate=1e-2)
model.counts_up = False
print(f"with LoRA ({trained:,} of {total:,} parameters) it counts down:", goes_on(adapted))
with adapted.disable_adapter():
    model.counts_up = True
    print("without the adapter, up:    ", goes_on(adapted))

with tempfile.TemporaryDirectory() as folder:
    adapted.save_pretrained(folder)
    size = os.path.getsize(os.path.join(folder, "adapter_model.safetensors"))
    print(f"the adapter's file has {size:,} bytes")
