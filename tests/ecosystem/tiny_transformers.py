"""Seven models of transformers, tiny, with random weights: encoders, and decoders whose cache comes in and goes out.

Two of them have a mask that hides padding. In the arguments with which they are exported it hides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as t

SIZES: Any = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


class Named(torch.nn.Module):
    """A model whose arguments have names, and its first result."""

    def __init__(self, model: Any, *names: str, **more: Any) -> None:
        super().__init__()
        self.model, self.names, self.more = model, names, more

    def forward(self, *given: Any) -> Any:
        return self.model(**dict(zip(self.names, given, strict=True)), **self.more)[0]


class Cached(torch.nn.Module):
    """A decoder that gets keys and values of all layers, and returns the longer ones."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Any, keys: Any, values: Any) -> Any:
        cache = t.DynamicCache(list(zip(keys.unbind(0), values.unbind(0), strict=True)))
        logits = self.model(ids, cache=cache, use_cache=True).logits
        return (
            logits,
            torch.stack([layer.keys for layer in cache.layers]),
            torch.stack([c.values for c in cache.layers]),
        )


def _ids(batch: int, length: int) -> Any:
    return torch.randint(4, 60, (batch, length))


def _cache(heads: int) -> tuple[Any, Any]:
    return torch.randn(2, 2, heads, 5, 8), torch.randn(2, 2, heads, 5, 8)


def _padding(*lengths: int) -> Any:
    """A mask for texts of these lengths."""
    return (torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]).long()


def _bert() -> tuple[Any, list[tuple]]:
    model = t.BertModel(t.BertConfig(vocab_size=60, max_position_embeddings=64, **SIZES))
    masks = _padding(9, 9), _padding(9, 4), _padding(1, 9)
    return (
        Named(model, "input_ids", "attention_mask", "token_type_ids"),
        [(_ids(2, 9), mask, torch.randint(0, 2, (2, 9))) for mask in masks],
    )


def _whisper() -> tuple[Any, list[tuple]]:
    config = t.WhisperConfig(
        vocab_size=60, num_mel_bins=8, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, max_source_positions=16,
        max_target_positions=32, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=3,
        suppress_tokens=None, begin_suppress_tokens=None,
    )  # fmt: skip
    model = t.WhisperForConditionalGeneration(config)
    named = Named(model, "input_features", "decoder_input_ids", "decoder_attention_mask", use_cache=False)
    return named, [(torch.randn(2, 8, 32), _ids(2, 6), mask) for mask in (_padding(6, 6), _padding(6, 2))]


def _gpt2() -> tuple[Any, tuple]:
    model = t.GPT2LMHeadModel(t.GPT2Config(vocab_size=60, n_embd=32, n_layer=2, n_head=4, n_positions=64))
    return Cached(model), (_ids(2, 3), *_cache(4))


def _llama() -> tuple[Any, tuple]:
    config = t.LlamaConfig(vocab_size=60, num_key_value_heads=2, max_position_embeddings=64, **SIZES)
    return Cached(t.LlamaForCausalLM(config)), (_ids(2, 3), *_cache(2))


def _t5() -> tuple[Any, tuple]:
    config = t.T5Config(
        vocab_size=60, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0
    )  # fmt: skip
    model = t.T5ForConditionalGeneration(config)
    return Named(model, "input_ids", "decoder_input_ids", use_cache=False), (_ids(2, 9), _ids(2, 4))


def _vit() -> tuple[Any, tuple]:
    model = t.ViTModel(t.ViTConfig(image_size=32, patch_size=8, **SIZES))
    return Named(model, "pixel_values"), (torch.randn(2, 3, 32, 32),)


def _qwen2() -> tuple[Any, tuple]:
    config = t.Qwen2Config(vocab_size=60, num_key_value_heads=2, max_position_embeddings=64, **SIZES)
    return Cached(t.Qwen2ForCausalLM(config)), (_ids(1, 1), *(part[:, :1] for part in _cache(2)))


MODELS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "bert": _bert, "gpt2": _gpt2, "llama": _llama, "qwen2": _qwen2, "t5": _t5, "vit": _vit, "whisper": _whisper,
}  # fmt: skip


def made(name: str) -> tuple[Any, list[tuple]]:
    """A model in evaluation mode, and arguments: those with which it is exported, and others."""
    t.logging.set_verbosity_error()
    model, given = MODELS[name]()
    return model.eval(), given if isinstance(given, list) else [given]
