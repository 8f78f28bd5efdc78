"""Fine-tunes a tiny transformer with transformers' Trainer, offline, in seconds: is a sentence about the past?

    python -m tensorgrad.run examples/libraries/transformers_trainer.py

This is an ordinary PyTorch program: under torch it prints the same numbers. It needs transformers and accelerate.
"""

import random
import sys
import tempfile

try:
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
except ImportError as error:
    sys.exit(f"{error}: this example needs transformers and accelerate")

PAST, PRESENT = ("walked", "saw", "built", "sang"), ("walks", "sees", "builds", "sings")
WHO = ("the old man", "a girl", "my friend", "the engineer", "her brother", "a cook")
WHERE = ("in the park", "at home", "by the river", "in town", "on the hill")

transformers.logging.set_verbosity_error()
transformers.set_seed(0)
draw = random.Random(0)


def sentences(number):
    """Sentences, and for each whether it is about the past."""
    for _ in range(number):
        past = draw.random() < 0.5
        yield " ".join((draw.choice(WHO), draw.choice(PAST if past else PRESENT), draw.choice(WHERE))), int(past)


train, test = list(sentences(256)), list(sentences(64))
words = Tokenizer(models.WordLevel(unk_token="[UNK]"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
words.train_from_iterator([text for text, _ in train], trainers.WordLevelTrainer(special_tokens=["[PAD]", "[UNK]"]))
tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]")


def rows(pairs):
    encoded = tokenizer([text for text, _ in pairs], return_token_type_ids=False)
    return [
        {"input_ids": ids, "attention_mask": mask, "labels": label}
        for ids, mask, (_, label) in zip(encoded["input_ids"], encoded["attention_mask"], pairs)
    ]


model = transformers.DistilBertForSequenceClassification(
    transformers.DistilBertConfig(vocab_size=len(tokenizer), dim=32, hidden_dim=64, n_layers=2, n_heads=4)
)
arguments = transformers.TrainingArguments(
    output_dir=tempfile.mkdtemp(), per_device_train_batch_size=16, num_train_epochs=3, learning_rate=2e-3,
    logging_steps=8, save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True,
)  # fmt: skip
trainer = transformers.Trainer(
    model=model,
    args=arguments,
    train_dataset=rows(train),
    eval_dataset=rows(test),
    data_collator=transformers.DataCollatorWithPadding(tokenizer),
    compute_metrics=lambda p: {"accuracy": float((p.predictions.argmax(-1) == p.label_ids).mean())},
)
trainer.train()
print(f"accuracy on sentences not seen in training: {trainer.evaluate()['eval_accuracy']:.2f}")

with tempfile.TemporaryDirectory() as folder:  # safetensors, which PyTorch's transformers loads as well
    trainer.save_model(folder)
    loaded = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
text = "my friend walks by the river"
with torch.no_grad():
    past = loaded(**tokenizer(text, return_tensors="pt", return_token_type_ids=False)).logits.softmax(-1)[0, 1]
print(f"{text!r} is about the past: {past.item():.2f}")
