"""Decoders of transformers, tiny: three steps, saved and loaded, attention both ways, generation with every cache."""

import torch
import transformers as t
from shared.transformers_families import run, tokens

SMALL = dict(
    vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0,
)  # fmt: skip
GROUPED = dict(SMALL, num_key_value_heads=2)
OLD = dict(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2)


def labelled():
    ids = tokens()
    return {"input_ids": ids, "labels": ids}


def of(name, config="Config", **options):
    """A function that makes the causal language model of a configuration."""
    config = getattr(t, name + config)
    model = getattr(t, f"{name}LMHeadModel", None) or getattr(t, f"{name}ForCausalLM")
    return (lambda: model(config(**options))), labelled


FAMILIES = {
    "bloom": of("Bloom", vocab_size=64, hidden_size=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2),
    "codegen": of("CodeGen", **OLD, n_ctx=64, rotary_dim=4),
    "falcon": of("Falcon", **{k: v for k, v in SMALL.items() if k != "intermediate_size"}),
    "gemma": of("Gemma", **GROUPED, head_dim=8),
    "gemma2": of("Gemma2", **GROUPED, head_dim=8, sliding_window=8),
    "gemma3": of("Gemma3", "TextConfig", **GROUPED, head_dim=8, sliding_window=8),
    "gpt2": of("GPT2", **OLD),
    "gpt_bigcode": of("GPTBigCode", **OLD),
    "gpt_neo": of("GPTNeo", vocab_size=64, hidden_size=32, num_layers=2, num_heads=4, max_position_embeddings=64,
                  attention_types=[[["global", "local"], 1]], window_size=8, bos_token_id=1, eos_token_id=2),
    "gpt_neox": of("GPTNeoX", **SMALL),
    "gptj": of("GPTJ", **OLD, rotary_dim=4),
    "granite": of("Granite", **GROUPED),
    "llama": of("Llama", **GROUPED),
    "mamba": of("Mamba", vocab_size=64, hidden_size=32, num_hidden_layers=2, state_size=4, bos_token_id=1,
                eos_token_id=2, pad_token_id=0),
    "mistral": of("Mistral", **GROUPED, sliding_window=8),
    "mixtral": of("Mixtral", **GROUPED, num_local_experts=4, num_experts_per_tok=2),
    "olmo": of("Olmo", **GROUPED),
    "opt": of("OPT", vocab_size=64, hidden_size=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=4,
              max_position_embeddings=64, word_embed_proj_dim=32, bos_token_id=1, eos_token_id=2, pad_token_id=0),
    "phi": of("Phi", **SMALL),
    "phi3": of("Phi3", **GROUPED),
    "qwen2": of("Qwen2", **GROUPED),
    "qwen3": of("Qwen3", **GROUPED, head_dim=8),
    "stablelm": of("StableLm", **GROUPED),
    "starcoder2": of("Starcoder2", **GROUPED),
}  # fmt: skip
RECURRENT = {"mamba"}


def generate(model, batch):
    """Token ids by each way of generation; they are the same with a cache and without."""
    start, length = batch["input_ids"][:, :5], dict(max_new_tokens=8, pad_token_id=0)
    greedy = model.generate(start, do_sample=False, **length)
    yield "greedy", greedy
    torch.testing.assert_close(model.generate(start, do_sample=False, use_cache=False, **length), greedy)
    torch.manual_seed(1)
    yield "sampled", model.generate(start, do_sample=True, top_k=20, top_p=0.9, temperature=0.8, **length)
    if model.config.model_type in RECURRENT:
        return
    yield "beams", model.generate(start, num_beams=3, num_return_sequences=2, **length)
    if model._can_compile_fullgraph:
        static = model.generate(start, do_sample=False, cache_implementation="static", disable_compile=True, **length)
        torch.testing.assert_close(static, greedy)
    if model._supports_sdpa:
        with torch.no_grad():
            mask = torch.ones_like(batch["input_ids"])
            mask[0, :3] = 0
            model.set_attn_implementation("sdpa")
            fused = model(batch["input_ids"], attention_mask=mask).logits
            model.set_attn_implementation("eager")
            plain = model(batch["input_ids"], attention_mask=mask).logits
        torch.testing.assert_close(fused[mask.bool()], plain[mask.bool()], rtol=1e-3, atol=1e-5)


if __name__ == "__main__":
    run(FAMILIES, generate)
