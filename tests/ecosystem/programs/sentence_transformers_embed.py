"""sentence-transformers: a tiny encoder with pooling learns from pairs, is saved and loaded, and finds sentences."""

import json
import os
import sys
import tempfile

import torch
import transformers as t
from sentence_transformers import SentenceTransformer, util
from sentence_transformers.sentence_transformer import losses as objectives
from sentence_transformers.sentence_transformer import modules
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

t.logging.set_verbosity_error()
TEXTS = ["the cat sat on the mat", "a dog ran after the cat", "the mat was red", "rain falls on the town"]
PAIRS = [("a cat on a mat", TEXTS[0]), ("the dog ran", TEXTS[1]), ("a red mat", TEXTS[2]), ("rain in town", TEXTS[3])]


def encoder(folder):
    """A folder with a tokenizer and a model, as one downloads them."""
    words = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words.train_from_iterator(
        [*TEXTS, *(first for first, _ in PAIRS)], trainers.WordLevelTrainer(special_tokens=special)
    )
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    t.PreTrainedTokenizerFast(tokenizer_object=words, **names).save_pretrained(folder)
    config = dict(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
    t.BertModel(t.BertConfig(**config)).save_pretrained(folder)
    return folder


torch.manual_seed(0)
transformer = modules.Transformer(encoder(tempfile.mkdtemp()), max_seq_length=16)
pooling = modules.Pooling(transformer.get_embedding_dimension(), pooling_mode="mean")
model = SentenceTransformer(modules=[transformer, pooling, modules.Normalize()], device="cpu")
objective = objectives.MultipleNegativesRankingLoss(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, eps=1e-4)
torch.manual_seed(1)
model.train()
losses = []
for _ in range(3):
    optimizer.zero_grad()
    sides = [model.tokenize(list(side)) for side in zip(*PAIRS)]
    loss = objective([{k: v for k, v in side.items() if torch.is_tensor(v)} for side in sides], None)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

model.eval()
found = model.encode(TEXTS, convert_to_tensor=True, show_progress_bar=False)
folder = os.path.join(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(), "model")
if not os.path.exists(folder):
    model.save_pretrained(folder, create_model_card=False)
loaded = SentenceTransformer(folder, device="cpu")
torch.testing.assert_close(
    loaded.encode(TEXTS, convert_to_tensor=True, show_progress_bar=False), found, rtol=1e-4, atol=1e-5
)
queries = loaded.encode([first for first, _ in PAIRS], batch_size=2, show_progress_bar=False)
hits = util.semantic_search(torch.from_numpy(queries), found, top_k=2)
numbers = {
    "embeddings": found[:, :4].tolist(),
    "similarities": loaded.similarity(queries, found).tolist(),
    "hits": [[hit["corpus_id"], hit["score"]] for line in hits for hit in line],
}
print(json.dumps({"losses": losses, "numbers": numbers}))
