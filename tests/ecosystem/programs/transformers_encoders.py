"""Encoders and encoder-decoders of transformers, tiny: three steps, saved and loaded, generation where there is one."""

import torch
import transformers as t
from shared.transformers_families import run, tokens

SMALL = dict(
    vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    max_position_embeddings=64, pad_token_id=0,
)  # fmt: skip
WIDE = dict(
    vocab_size=64, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
    encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    decoder_start_token_id=2, forced_eos_token_id=2,
)  # fmt: skip
T5 = dict(
    vocab_size=64, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, pad_token_id=0, eos_token_id=1,
    decoder_start_token_id=0,
)  # fmt: skip


def masked():
    """One sentence is shorter."""
    ids = tokens()
    mask = torch.ones_like(ids)
    mask[0, 6:] = 0
    return {"input_ids": ids, "attention_mask": mask}


def predicted():
    batch = masked()
    return {**batch, "labels": batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)}


def classified():
    return {**masked(), "labels": torch.tensor([0, 1])}


def spans():
    return {**masked(), "start_positions": torch.tensor([1, 2]), "end_positions": torch.tensor([3, 4])}


def of(name, inputs, model="ForMaskedLM", **options):
    """A function that makes a model of a configuration, and one that makes its inputs."""
    return (lambda: getattr(t, name + model)(getattr(t, f"{name}Config")(**options))), inputs


def classifier(name, **options):
    return of(name, classified, "ForSequenceClassification", **options)


FAMILIES = {
    "albert": of("Albert", predicted, **SMALL, embedding_size=16),
    "bart": of("Bart", predicted, "ForConditionalGeneration", **WIDE),
    "bert": of("Bert", predicted, **SMALL),
    "bert classifier": classifier("Bert", **SMALL),
    "bert questions": of("Bert", spans, "ForQuestionAnswering", **SMALL),
    "camembert": of("Camembert", predicted, **SMALL),
    "convbert": classifier("ConvBert", **SMALL, embedding_size=32, conv_kernel_size=3),
    "deberta": of("Deberta", predicted, **SMALL, relative_attention=True, pos_att_type=["p2c", "c2p"]),
    "deberta-v2": of("DebertaV2", predicted, **SMALL, relative_attention=True, pos_att_type=["p2c", "c2p"]),
    "distilbert": of("DistilBert", predicted, vocab_size=64, dim=32, hidden_dim=48, n_layers=2, n_heads=4,
                     max_position_embeddings=64, pad_token_id=0),
    "electra": of("Electra", predicted, **SMALL, embedding_size=16),
    "fnet": of("FNet", lambda: {k: v for k, v in predicted().items() if k != "attention_mask"}, vocab_size=64,
               hidden_size=32, intermediate_size=48, num_hidden_layers=2, max_position_embeddings=64),
    "funnel": classifier("Funnel", vocab_size=64, d_model=32, d_inner=48, block_sizes=[1, 1], n_head=4, d_head=8),
    "layoutlm": of("LayoutLM", lambda: {**predicted(), "bbox": torch.arange(72).reshape(2, 9, 4)}, **SMALL,
                   max_2d_position_embeddings=128),
    "longformer": classifier("Longformer", **SMALL, attention_window=4),
    "marian": of("Marian", predicted, "MTModel", **WIDE),
    "mbart": of("MBart", predicted, "ForConditionalGeneration", **WIDE),
    "mobilebert": of("MobileBert", predicted, **SMALL, embedding_size=16, true_hidden_size=32,
                     intra_bottleneck_size=32, num_feedforward_networks=2),
    "modernbert": of("ModernBert", predicted, **SMALL, global_attn_every_n_layers=2, local_attention=4),
    "mpnet": of("MPNet", predicted, **{**SMALL, "pad_token_id": 1}),
    "mt5": of("MT5", predicted, "ForConditionalGeneration", **T5),
    "pegasus": of("Pegasus", predicted, "ForConditionalGeneration", **WIDE),
    "rembert": of("RemBert", predicted, **SMALL, input_embedding_size=16, output_embedding_size=16),
    "roberta": of("Roberta", predicted, **{**SMALL, "pad_token_id": 1}),
    "roformer": of("RoFormer", predicted, **SMALL),
    "squeezebert": of("SqueezeBert", predicted, **SMALL, embedding_size=32, q_groups=2, k_groups=2, v_groups=2,
                      post_attention_groups=2, intermediate_groups=2, output_groups=2),
    "t5": of("T5", predicted, "ForConditionalGeneration", **T5),
    "t5 gated": of("T5", predicted, "ForConditionalGeneration", **T5, feed_forward_proj="gated-gelu"),
    "xlm-roberta": classifier("XLMRoberta", **{**SMALL, "pad_token_id": 1}),
    "xlnet": classifier("XLNet", vocab_size=64, d_model=32, n_layer=2, n_head=4, d_inner=48),
}  # fmt: skip


def generate(model, batch):
    """Token ids of encoder-decoders; they are the same with a cache and without."""
    if not model.config.is_encoder_decoder:
        return
    given = {key: batch[key] for key in ("input_ids", "attention_mask")}
    greedy = model.generate(**given, max_new_tokens=8, do_sample=False)
    yield "greedy", greedy
    torch.testing.assert_close(model.generate(**given, max_new_tokens=8, do_sample=False, use_cache=False), greedy)
    yield "beams", model.generate(**given, max_new_tokens=8, num_beams=3, num_return_sequences=2)
    torch.manual_seed(1)
    yield "sampled", model.generate(**given, max_new_tokens=8, do_sample=True, top_k=10)


if __name__ == "__main__":
    run(FAMILIES, generate)
