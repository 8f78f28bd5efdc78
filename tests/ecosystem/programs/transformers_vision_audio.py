"""Models of transformers that see and hear, tiny: three steps, saved and loaded."""

import torch
import transformers as t
from shared.transformers_families import run, sgd, tokens

VIT = dict(
    image_size=16, patch_size=4, num_channels=3, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
    intermediate_size=48, num_labels=4,
)  # fmt: skip
TEXT = dict(
    vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    max_position_embeddings=64, projection_dim=16, bos_token_id=1, eos_token_id=2, pad_token_id=0,
)  # fmt: skip
SPEECH = dict(
    vocab_size=16, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
    conv_dim=[16, 16], conv_kernel=[8, 4], conv_stride=[4, 4], num_feat_extract_layers=2, num_conv_pos_embeddings=8,
    num_conv_pos_embedding_groups=2, mask_time_prob=0.0, layerdrop=0.0, feat_extract_norm="group",
)  # fmt: skip


def images(size=16, number=2):
    return torch.randn(number, 3, size, size)


def classified(size=16, number=2):
    return lambda: {"pixel_values": images(size, number), "labels": torch.arange(number) % 4}


def many():
    """For batch normalisation of a few values: of two, it would amplify rounding errors."""
    return classified(64, 8)()


def pairs(size=16):
    return lambda: {"pixel_values": images(size), "input_ids": tokens(), "return_loss": True}


def boxes():
    label = {"class_labels": torch.tensor([1, 2]), "boxes": torch.tensor([[0.3, 0.3, 0.2, 0.2], [0.6, 0.5, 0.3, 0.4]])}
    return {"pixel_values": images(32), "labels": [label, {k: v[:1] for k, v in label.items()}]}


def of(name, inputs, model="ForImageClassification", **options):
    return (lambda: getattr(t, name + model)(getattr(t, f"{name}Config")(**options))), inputs


def composed(name, text=None, vision=None, model="Model", inputs=None, **options):
    return (
        lambda: getattr(t, name + model)(getattr(t, f"{name}Config")(text_config=text, vision_config=vision, **options))
    ), inputs or pairs()


BACKBONE = dict(backbone_config=t.ResNetConfig(
    num_channels=3, embedding_size=8, hidden_sizes=[8, 12, 16, 20], depths=[1, 1, 1, 1], layer_type="basic",
    out_features=["stage2", "stage3", "stage4"],
))  # fmt: skip

FAMILIES = {
    "beit": of("Beit", classified(), **VIT),
    "blip": composed("Blip", dict(TEXT, encoder_hidden_size=32, is_decoder=True, sep_token_id=3),
                     {k: v for k, v in VIT.items() if k != "num_labels"}, "ForConditionalGeneration",
                     lambda: {"pixel_values": images(), "input_ids": (ids := tokens()), "labels": ids}),
    "clip": composed("CLIP", dict(TEXT), {k: v for k, v in VIT.items() if k != "num_labels"}, projection_dim=16),
    "convnext": of("ConvNext", classified(32), num_channels=3, hidden_sizes=[8, 12, 16, 20], depths=[1, 1, 1, 1],
                   num_labels=4),
    "convnextv2": of("ConvNextV2", classified(32), num_channels=3, hidden_sizes=[8, 12, 16, 20], depths=[1, 1, 1, 1],
                     num_labels=4),
    "deit": of("DeiT", classified(), **VIT),
    "detr": of("Detr", boxes, "ForObjectDetection", **BACKBONE, d_model=32, encoder_layers=1, decoder_layers=2,
               encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48,
               num_queries=5, num_labels=4, use_timm_backbone=False, use_pretrained_backbone=False),
    "dinov2": of("Dinov2", classified(), **{k: v for k, v in VIT.items() if k != "intermediate_size"}, mlp_ratio=2),
    "dpt": of("DPT", lambda: {"pixel_values": images(32), "labels": torch.randint(0, 4, (2, 32, 32))},
              "ForSemanticSegmentation", **{**VIT, "image_size": 32, "num_hidden_layers": 4}, is_hybrid=False, backbone_out_indices=[0, 1, 2, 3],
              neck_hidden_sizes=[8, 8, 8, 8], fusion_hidden_size=8, auxiliary_loss_weight=0.4),
    "efficientnet": of("EfficientNet", many, num_channels=3, image_size=32, width_coefficient=0.1,
                       depth_coefficient=0.1, hidden_dim=128, num_labels=4),
    "hubert": of("Hubert", lambda: {"input_values": torch.randn(2, 400), "labels": torch.randint(1, 16, (2, 4))},
                 "ForCTC", **SPEECH),
    "levit": of("Levit", many, image_size=64, num_channels=3, hidden_sizes=[16, 24, 32],
                num_attention_heads=[2, 3, 4], depths=[1, 1, 1], key_dim=[8, 8, 8], num_labels=4),
    "mobilevit": of("MobileViT", many, image_size=64, patch_size=2, hidden_sizes=[16, 24, 32],
                    neck_hidden_sizes=[8, 8, 12, 16, 20, 24, 32], num_attention_heads=4, num_labels=4),
    "poolformer": of("PoolFormer", classified(32), hidden_sizes=[8, 12, 16, 20], depths=[1, 1, 1, 1], num_labels=4),
    "regnet": of("RegNet", many, embedding_size=8, hidden_sizes=[8, 12, 16, 24], depths=[1, 1, 1, 1],
                 groups_width=4, num_labels=4),
    "resnet": of("ResNet", many, embedding_size=8, hidden_sizes=[8, 12, 16, 20], depths=[1, 1, 1, 1],
                 num_labels=4),
    "segformer": of("Segformer", lambda: {"pixel_values": images(32), "labels": torch.randint(0, 4, (2, 32, 32))},
                    "ForSemanticSegmentation", hidden_sizes=[8, 12, 16, 24], depths=[1, 1, 1, 1],
                    num_attention_heads=[1, 2, 2, 4], decoder_hidden_size=16, num_labels=4),
    "siglip": composed("Siglip", dict(TEXT, projection_size=32), {k: v for k, v in VIT.items() if k != "num_labels"}),
    "speech_to_text": of("Speech2Text", lambda: {"input_features": torch.randn(2, 24, 16), "labels": tokens(2, 6)},
                         "ForConditionalGeneration", vocab_size=64, d_model=32, encoder_layers=2, decoder_layers=2,
                         encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48,
                         input_feat_per_channel=16, input_channels=1, conv_channels=16, max_source_positions=64,
                         max_target_positions=64),
    "swin": of("Swin", classified(32), image_size=32, patch_size=2, embed_dim=16, depths=[1, 2], num_heads=[2, 4],
               window_size=4, num_labels=4),
    "swinv2": of("Swinv2", classified(32), image_size=32, patch_size=2, embed_dim=16, depths=[1, 2], num_heads=[2, 4],
                 window_size=4, num_labels=4),
    "vit": of("ViT", classified(), **VIT),
    "vit_mae": of("ViTMAE", lambda: {"pixel_values": images(), "noise": torch.rand(2, 16)}, "ForPreTraining",
                  **{k: v for k, v in VIT.items() if k != "num_labels"}, decoder_hidden_size=16,
                  decoder_num_hidden_layers=1, decoder_num_attention_heads=2, decoder_intermediate_size=24),
    "wav2vec2": of("Wav2Vec2", lambda: {"input_values": torch.randn(2, 400), "labels": torch.randint(1, 16, (2, 4))},
                   "ForCTC", **SPEECH),
    "wavlm": of("WavLM", lambda: {"input_values": torch.randn(2, 400), "labels": torch.tensor([0, 1])},
                "ForSequenceClassification", **SPEECH),
    "whisper": of("Whisper", lambda: {"input_features": torch.randn(2, 8, 64), "labels": tokens(2, 6)},
                  "ForConditionalGeneration", vocab_size=64, num_mel_bins=8, d_model=32, encoder_layers=2,
                  decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48,
                  decoder_ffn_dim=48, max_source_positions=32, max_target_positions=64, pad_token_id=0, bos_token_id=1,
                  eos_token_id=2, decoder_start_token_id=3, suppress_tokens=None, begin_suppress_tokens=None),
    "yolos": of("Yolos", boxes, "ForObjectDetection", **{**VIT, "image_size": [32, 32]}, num_detection_tokens=5),
}  # fmt: skip


def generate(model, batch):
    """Token ids of the speech recognizers."""
    if model.config.is_encoder_decoder and "input_features" in batch:
        yield "greedy", model.generate(batch["input_features"], max_new_tokens=8, do_sample=False)
        yield "beams", model.generate(batch["input_features"], max_new_tokens=8, num_beams=2)


if __name__ == "__main__":
    run(FAMILIES, generate, sgd)
