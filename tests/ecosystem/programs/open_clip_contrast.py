"""open_clip: small CLIP, CoCa and SigLIP models learn pairs of images and texts; one is saved and loaded."""

import json
import sys
import tempfile

import numpy as np
import open_clip
import torch
from open_clip.loss import SigLipLoss
from PIL import Image
from shared.training import saved_and_loaded, some, three_steps

VISION = dict(layers=2, width=32, head_width=16, patch_size=8, image_size=32)
TEXT = dict(context_length=12, vocab_size=49408, width=32, heads=2, layers=2)
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
texts = open_clip.SimpleTokenizer(context_length=12)(["a cat on a mat", "two dogs", "rain in town", "a red mat"])
losses, numbers = [], {"tokens": texts.tolist()}


def clip(seed=0, **more):
    torch.manual_seed(seed)
    return open_clip.CLIP(16, dict(VISION, **more.pop("vision", {})), TEXT, output_dict=False, **more)


def train(name, model, loss, images):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, eps=1e-4)
    its = three_steps(optimizer, lambda: loss(model(images, texts)))
    losses.extend(its)
    model.eval()
    with torch.no_grad():
        numbers[name] = [*its, *some(model.encode_image(images)), *some(model.encode_text(texts, normalize=True))]
    return model


torch.manual_seed(1)
images = torch.randn(4, 3, 32, 32)
contrast, pairs = open_clip.ClipLoss(), SigLipLoss()
model = train("clip", clip(), lambda out: contrast(*out), images)
again = saved_and_loaded(model, clip(5), folder)
torch.testing.assert_close(again.encode_text(texts), model.encode_text(texts))
train("siglip", clip(init_logit_bias=-10.0), lambda out: pairs(*out), images)
train(
    "patches dropped", clip(vision=dict(pool_type="avg", final_ln_after_pool=True)), lambda out: contrast(*out), images
)
torch.manual_seed(0)
decoder = dict(TEXT, attn_pooler_heads=2)
reader = dict(TEXT, embed_cls=True, output_tokens=True)
viewer = dict(VISION, attentional_pool=True, attn_pooler_heads=2, attn_pooler_queries=4, output_tokens=True)
coca = open_clip.CoCa(32, decoder, dict(reader, context_length=12), viewer)
torch.nn.init.normal_(coca.text_decoder.text_projection, std=0.1)  # the library leaves what lay in memory
objective = open_clip.CoCaLoss(caption_loss_weight=2.0, clip_loss_weight=1.0)
optimizer = torch.optim.AdamW(coca.parameters(), lr=1e-3, eps=1e-4)
NAMES = ("image_features", "text_features", "logits", "labels", "logit_scale")
numbers["coca"] = three_steps(optimizer, lambda: sum(objective(**{k: coca(images, texts)[k] for k in NAMES})))
losses += numbers["coca"]
seen = open_clip.image_transform(32, is_train=False)(
    Image.fromarray((np.arange(3072) % 251).astype("uint8").reshape(32, 32, 3))
)
numbers["transform"] = some(seen)
print(json.dumps({"losses": losses, "numbers": numbers}))
