"""setfit: a sentence model that learns from pairs of a few texts, and its head; with a head of layers as well."""

import json
import os
import sys
import tempfile
import warnings

import datasets
import setfit
import transformers as t
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from sklearn.linear_model import LogisticRegression
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

warnings.simplefilter("ignore")
t.logging.set_verbosity_error()
datasets.disable_progress_bars()
TEXTS = ["good film today", "a very good book", "bad film again", "a very bad day", "good good day", "bad bad book"]
LABELS = [1, 1, 0, 0, 1, 0]


def sentence_model(folder):
    words = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.train_from_iterator(TEXTS, trainers.WordLevelTrainer(special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"]))
    names = dict(unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]")
    t.PreTrainedTokenizerFast(tokenizer_object=words, **names).save_pretrained(folder)
    t.set_seed(0)
    t.BertModel(
        t.BertConfig(
            vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24,
            max_position_embeddings=32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )
    ).save_pretrained(folder)  # fmt: skip
    transformer = modules.Transformer(folder, max_seq_length=16)
    return SentenceTransformer(modules=[transformer, modules.Pooling(16)], device="cpu")


class Remember(t.TrainerCallback):
    def __init__(self):
        self.losses = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.losses += [logs[key] for key in ("loss", "embedding_loss") if key in logs]


mine = tempfile.mkdtemp()
os.chdir(mine)
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
rows = datasets.Dataset.from_dict({"text": TEXTS, "label": LABELS})
losses, numbers = [], {}
for head in ("logistic", "layers"):
    body = sentence_model(os.path.join(mine, "body"))
    t.set_seed(1)
    kept = setfit.SetFitHead(in_features=16, out_features=2, device="cpu") if head == "layers" else LogisticRegression()
    model = setfit.SetFitModel(model_body=body, model_head=kept, labels=[0, 1])
    remember = Remember()
    arguments = setfit.TrainingArguments(
        output_dir=os.path.join(mine, head), batch_size=(4, 6), num_epochs=(1, 2), max_steps=3, logging_steps=1,
        end_to_end=head == "layers", report_to="none", seed=0, show_progress_bar=False, save_strategy="no",
        body_learning_rate=(1e-3, 1e-3), head_learning_rate=0.05,
    )  # fmt: skip
    trainer = setfit.Trainer(model, args=arguments, train_dataset=rows, callbacks=[remember])
    trainer.train()
    losses += remember.losses
    place = os.path.join(folder, head)
    if not os.path.exists(place):
        model.save_pretrained(place)
    again = setfit.SetFitModel.from_pretrained(place)
    numbers[head] = [again.predict_proba(TEXTS).tolist(), float(again.encode(TEXTS).__abs__().sum())]
print(json.dumps({"losses": losses, "numbers": numbers}))
