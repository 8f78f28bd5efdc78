"""LoRA and other adapters of peft on a tiny Llama: three steps, saved, loaded, merged; only the adapters learn."""

import json
import os
import sys
import tempfile

import peft
import torch
import transformers as t

CONFIG = dict(
    vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0,
)  # fmt: skip
WAYS = {
    "lora": lambda: peft.LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=8, lora_dropout=0.1,
                                    target_modules=["q_proj", "v_proj"]),
    "dora": lambda: peft.LoraConfig(task_type="CAUSAL_LM", r=4, use_dora=True, target_modules="all-linear"),
    "ia3": lambda: peft.IA3Config(task_type="CAUSAL_LM", target_modules=["k_proj", "down_proj"],
                                  feedforward_modules=["down_proj"]),
    "loha": lambda: peft.LoHaConfig(task_type="CAUSAL_LM", r=4, target_modules=["q_proj"]),
    "lokr": lambda: peft.LoKrConfig(task_type="CAUSAL_LM", r=4, target_modules=["q_proj"]),
    "oft": lambda: peft.OFTConfig(task_type="CAUSAL_LM", oft_block_size=4, r=0, target_modules=["q_proj"]),
    "prompt": lambda: peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3),
    "prefix": lambda: peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3),
    "vera": lambda: peft.VeraConfig(task_type="CAUSAL_LM", r=4, target_modules=["q_proj"]),
}  # fmt: skip


def base():
    torch.manual_seed(0)
    return t.LlamaForCausalLM(t.LlamaConfig(**CONFIG))


folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
losses, numbers = [], {}
for way, config in WAYS.items():
    model = peft.get_peft_model(base(), config())
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    ids = torch.randint(3, 64, (2, 9))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2, eps=1e-4)
    model.train()
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        logits = model(input_ids=ids).logits
    path = os.path.join(folder, way)
    if not os.path.exists(path):
        model.save_pretrained(path)
    loaded = peft.PeftModel.from_pretrained(base(), path).eval()
    with torch.no_grad():
        torch.testing.assert_close(loaded(input_ids=ids).logits, logits, rtol=1e-3, atol=1e-4)
        if way in ("lora", "dora", "ia3", "loha", "lokr", "oft", "vera"):
            with loaded.disable_adapter():
                torch.testing.assert_close(loaded(input_ids=ids).logits, base().eval()(input_ids=ids).logits)
            merged = loaded.merge_and_unload()
            torch.testing.assert_close(merged(input_ids=ids).logits, logits, rtol=1e-3, atol=1e-4)
    numbers[way] = [trained, *logits[0, -1, :4].tolist(), logits.norm().item()]
print(json.dumps({"losses": losses, "numbers": numbers}))
