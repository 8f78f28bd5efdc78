"""transformers' Trainer: three steps with a scheduler and evaluation, a checkpoint, and resuming from it."""

import json
import os
import sys
import tempfile

import torch
import transformers as t

t.logging.set_verbosity_error()


class Sentences(torch.utils.data.Dataset):
    """Token ids whose class is whether most of them are even."""

    def __init__(self, seed, number=24):
        ids = torch.randint(4, 60, (number, 8), generator=torch.Generator().manual_seed(seed))
        self.rows = [{"input_ids": row, "labels": (row % 2 == 0).sum() > 4} for row in ids]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {"input_ids": self.rows[i]["input_ids"], "labels": self.rows[i]["labels"].long()}


def accuracy(predictions):
    return {"accuracy": float((predictions.predictions.argmax(-1) == predictions.label_ids).mean())}


class Remember(t.TrainerCallback):
    def __init__(self):
        self.seen = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.seen.append({key: logs[key] for key in ("loss", "grad_norm", "learning_rate") if key in logs})


def trainer(folder, **more):
    t.set_seed(0)
    config = t.BertConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, num_labels=2
    )
    options = dict(
        output_dir=folder, per_device_train_batch_size=8, max_steps=3, logging_steps=1, learning_rate=1e-3,
        warmup_steps=1, lr_scheduler_type="cosine", save_steps=2, eval_strategy="steps", eval_steps=3, report_to=[],
        disable_tqdm=True, use_cpu=True, adam_epsilon=1e-4, dataloader_num_workers=0,
    ) | more  # fmt: skip
    remember = Remember()
    made = t.Trainer(
        model=t.BertForSequenceClassification(config), args=t.TrainingArguments(**options),
        train_dataset=Sentences(1), eval_dataset=Sentences(2), compute_metrics=accuracy, callbacks=[remember],
    )  # fmt: skip
    made.remove_callback(t.PrinterCallback)
    return made, remember.seen


folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
mine = tempfile.mkdtemp()
first, seen = trainer(os.path.join(mine, "first"))
first.train()
if not os.path.exists(os.path.join(folder, "model")):
    first.save_model(os.path.join(folder, "model"))
losses = [line["loss"] for line in seen if "loss" in line]
measured = first.evaluate()
predicted = first.predict(Sentences(2))

# from the checkpoint after two steps (the data's order and dropout's numbers continue as they were)
again, seen_again = trainer(os.path.join(mine, "first"))
again.train(resume_from_checkpoint=os.path.join(mine, "first", "checkpoint-2"))
resumed = [line["loss"] for line in seen_again if "loss" in line][-1]
assert abs(resumed - losses[-1]) < 1e-5, (resumed, losses)

loaded = t.BertForSequenceClassification.from_pretrained(os.path.join(folder, "model")).eval()
ids = torch.stack([row["input_ids"] for row in Sentences(2).rows])
with torch.no_grad():
    torch.testing.assert_close(loaded(ids).logits, torch.from_numpy(predicted.predictions), rtol=1e-4, atol=1e-5)

accumulated, seen_accumulated = trainer(
    os.path.join(mine, "accumulated"), gradient_accumulation_steps=2, per_device_train_batch_size=4, bf16=False,
    gradient_checkpointing=True, label_smoothing_factor=0.1, optim="adafactor", save_strategy="no",
)  # fmt: skip
accumulated.train()
numbers = {
    "grad_norms": [float(line["grad_norm"]) for line in seen if "grad_norm" in line],
    "rates": [line["learning_rate"] for line in seen if "learning_rate" in line],
    "evaluation": [measured["eval_loss"], measured["eval_accuracy"]],
    "predictions": predicted.predictions[:4].tolist(),
    "accumulated": [line["loss"] for line in seen_accumulated if "loss" in line],
}
print(json.dumps({"losses": losses, "numbers": numbers}))
