"""flair: a tagger with characters, a recurrent layer and a CRF, and a classifier of texts; trained, saved, loaded."""

import json
import logging
import os
import sys
import tempfile
import warnings

import flair
import torch
from flair.data import Dictionary, Sentence
from flair.embeddings import (
    CharacterEmbeddings,
    DocumentRNNEmbeddings,
    FlairEmbeddings,
    OneHotEmbeddings,
    StackedEmbeddings,
)
from flair.models import LanguageModel, SequenceTagger, TextClassifier

warnings.simplefilter("ignore")
logging.getLogger("flair").setLevel(logging.ERROR)
flair.device = torch.device("cpu")
TEXTS = [
    ("Anna lives in Paris", ["PER", None, None, "LOC"], "short"),
    ("Bob and Carl went to old Rome", ["PER", None, "PER", None, None, None, "LOC"], "long"),
    ("in Rome Anna sang", [None, "LOC", "PER", None], "short"),
    ("Carl has seen Paris and Rome with Bob", ["PER", None, None, "LOC", None, "LOC", None, "PER"], "long"),
]


def sentences():
    made = []
    for text, tags, length in TEXTS:
        sentence = Sentence(text)
        for token, tag in zip(sentence, tags):
            if tag is not None:
                sentence[token.idx - 1 : token.idx].add_label("ner", tag)
        made.append(sentence.add_label("length", length))
    return made


def dictionary(words, unknown=True):
    made = Dictionary(add_unk=unknown)
    for word in words:
        made.add_item(word)
    return made


def tagger():
    characters, file = dictionary(sorted({c for text, *_ in TEXTS for c in text})), os.path.join(own, "characters")
    characters.save(file)
    letters = LanguageModel(characters, True, 8, 1, 6, dropout=0.0)
    embeddings = StackedEmbeddings(
        [
            OneHotEmbeddings(dictionary(sorted({w for text, *_ in TEXTS for w in text.split()})), embedding_length=8),
            CharacterEmbeddings(file, char_embedding_dim=4, hidden_size_char=4),
            FlairEmbeddings(letters, fine_tune=True),
        ]
    )
    tags = dictionary(["O", "PER", "LOC"], False)
    return SequenceTagger(
        embeddings, tags, "ner", hidden_size=8, dropout=0.0, word_dropout=0.0, locked_dropout=0.0, use_crf=True
    )


def classifier():
    words = dictionary(sorted({w for text, *_ in TEXTS for w in text.split()}))
    document = DocumentRNNEmbeddings(
        [OneHotEmbeddings(words, embedding_length=8)], hidden_size=8, rnn_type="LSTM", dropout=0.0
    )
    return TextClassifier(document, "length", label_dictionary=dictionary(["short", "long"], False))


folder, own = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(), tempfile.mkdtemp()
losses, numbers = [], {}
for name, kind, make in (("tagger", SequenceTagger, tagger), ("classifier", TextClassifier, classifier)):
    flair.set_seed(0)
    model = make().train()
    optimizer = torch.optim.AdamW(model.parameters(), 0.05)
    for _ in range(3):
        optimizer.zero_grad()
        loss, number = model.forward_loss(sentences())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        losses.append(loss.item() / number)
    file = os.path.join(folder, f"{name}.pt")
    if not os.path.exists(file):
        model.save(file)
    loaded, data = kind.load(file).eval(), sentences()
    loaded.predict(data, label_name="told")
    result = loaded.evaluate(sentences(), gold_label_type="ner" if name == "tagger" else "length", mini_batch_size=2)
    labels = [[label.value, label.score] for sentence in data for label in sentence.get_labels("told")]
    numbers[name] = [labels, result.main_score, result.loss]
print(json.dumps({"losses": losses, "numbers": numbers}))
