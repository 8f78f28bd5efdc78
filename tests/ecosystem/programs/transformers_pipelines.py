"""Pipelines of transformers that need no downloaded tokenizer: a tokenizer, an image processor and models made here."""

import json
import os
import sys
import tempfile

import numpy as np
import torch
import transformers as t
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

t.logging.set_verbosity_error()
TEXTS = ["the cat sat on the mat", "a dog ran after the cat", "the mat was red and the dog was not"]


def tokenizer():
    made = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    made.train_from_iterator(TEXTS, trainers.WordLevelTrainer(special_tokens=special))
    return t.PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", bos_token="[CLS]", eos_token="[SEP]",
    )  # fmt: skip


SMALL = dict(vocab_size=32, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
words = tokenizer()
torch.manual_seed(0)
classifier = t.BertForSequenceClassification(t.BertConfig(**SMALL, num_labels=3)).train()
batch = words(TEXTS, padding=True, return_tensors="pt", return_token_type_ids=False)
optimizer = torch.optim.AdamW(classifier.parameters(), lr=1e-3, eps=1e-4)
losses = []
for _ in range(3):
    optimizer.zero_grad()
    loss = classifier(**batch, labels=torch.arange(3)).loss
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

folder = os.path.join(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(), "classifier")
if not os.path.exists(folder):
    classifier.save_pretrained(folder)
    words.save_pretrained(folder)
classify = t.pipeline("text-classification", model=folder, device="cpu", top_k=None)
numbers = {"classified": [[d["label"], d["score"]] for d in classify(TEXTS[:1])[0]]}
numbers["classified"] += [d["score"] for line in classify(TEXTS, batch_size=2) for d in line]

torch.manual_seed(1)
masked = t.BertForMaskedLM(t.BertConfig(**SMALL)).eval()
fill = t.pipeline("fill-mask", model=masked, tokenizer=words, device="cpu", top_k=3)
numbers["filled"] = [[d["token_str"], d["score"]] for d in fill("the [MASK] sat on the mat")]

generator = t.GPT2LMHeadModel(t.GPT2Config(vocab_size=32, n_embd=32, n_layer=2, n_head=4, n_positions=32)).eval()
generate = t.pipeline("text-generation", model=generator, tokenizer=words, device="cpu")
numbers["written"] = generate("the cat", max_new_tokens=5, do_sample=False)[0]["generated_text"].split()

features = t.pipeline(
    "feature-extraction", model=t.BertModel(t.BertConfig(**SMALL)).eval(), tokenizer=words, device="cpu"
)
numbers["features"] = np.asarray(features(TEXTS[1]))[0, :2, :4].tolist()

seer = t.ViTForImageClassification(
    t.ViTConfig(image_size=16, patch_size=4, num_labels=4, **{k: v for k, v in SMALL.items() if k != "vocab_size"})
).eval()
processor = t.ViTImageProcessorPil(size={"height": 16, "width": 16})
look = t.pipeline("image-classification", model=seer, image_processor=processor, device="cpu")
picture = Image.fromarray(np.random.RandomState(0).randint(0, 256, (20, 24, 3), dtype=np.uint8))
numbers["seen"] = sorted([d["label"], d["score"]] for d in look(picture))
print(json.dumps({"losses": losses, "numbers": numbers}))
