"""trl's trainers of tiny decoders: supervised, from preferences, of a reward, and from rewards, with LoRA and without."""

import json
import os
import sys
import tempfile

import datasets
import peft
import torch
import transformers as t
import trl
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

t.logging.set_verbosity_error()
datasets.disable_progress_bars()
WORDS = [
    "the",
    "cat",
    "dog",
    "bird",
    "sat",
    "ran",
    "flew",
    "on",
    "in",
    "under",
    "mat",
    "hat",
    "tree",
    "sun",
    "rain",
    "is",
    "was",
    "good",
    "bad",
    "big",
    "small",
    "what",
    "where",
    "who",
]
TEMPLATE = "{% for m in messages %}{{ m['role'] }} {{ m['content'] }} [EOS] {% endfor %}"
mine = tempfile.mkdtemp()
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()


def tokenizer():
    made = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = ["[PAD]", "[UNK]", "[BOS]", "[EOS]", "user", "assistant"]
    made.train_from_iterator([" ".join(WORDS)], trainers.WordLevelTrainer(special_tokens=special))
    return t.PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="[UNK]", pad_token="[PAD]", bos_token="[BOS]", eos_token="[EOS]",
        chat_template=TEMPLATE, padding_side="left",
    )  # fmt: skip


words = tokenizer()
SIZES = dict(
    vocab_size=len(words), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    max_position_embeddings=64, bos_token_id=2, eos_token_id=3, pad_token_id=0,
)  # fmt: skip


def decoder():
    t.set_seed(0)
    return t.LlamaForCausalLM(t.LlamaConfig(**SIZES))


def scorer():
    t.set_seed(0)
    return t.LlamaForSequenceClassification(t.LlamaConfig(**SIZES, num_labels=1))


def lora(task="CAUSAL_LM", **more):
    return peft.LoraConfig(task_type=task, r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], **more)


def options(config, name, **more):
    return config(
        output_dir=os.path.join(mine, name), per_device_train_batch_size=4, max_steps=3, logging_steps=1,
        learning_rate=1e-3, adam_epsilon=1e-4, save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True,
        bf16=False, seed=0, **more,
    )  # fmt: skip


def sentence(i, length=6):
    return " ".join(WORDS[(i * 7 + k * (i % 5 + 1)) % len(WORDS)] for k in range(length))


class Remember(t.TrainerCallback):
    def __init__(self):
        self.logs = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.logs.append(logs)


def trained(trainer):
    """Trains; the losses, and other numbers that the trainer logged."""
    remember = Remember()
    trainer.add_callback(remember)
    trainer.remove_callback(t.PrinterCallback)
    trainer.train()
    rows = [row for row in remember.logs if "loss" in row]
    left_out = ("step_time", "runtime", "per_second", "learning_rate", "epoch")
    names = sorted(n for n in rows[0] if n != "loss" and not any(part in n for part in left_out))
    return [row["loss"] for row in rows], [[n, *(float(row.get(n, 0)) for row in rows)] for n in names]


losses, numbers = [], {}


def remembered(name, trainer):
    found, logged = trained(trainer)
    losses.extend(found)
    numbers[name] = logged
    return trainer.model


texts = datasets.Dataset.from_list([{"text": sentence(i, 4 + i % 5)} for i in range(16)])
pairs = datasets.Dataset.from_list(
    [
        {"prompt": sentence(i, 3), "chosen": " " + sentence(i + 1, 4), "rejected": " " + sentence(i + 2, 5)}
        for i in range(16)
    ]
)
prompts = datasets.Dataset.from_list([{"prompt": sentence(i, 3 + i % 2)} for i in range(16)])
talks = datasets.Dataset.from_list(
    [
        {
            "messages": [
                {"role": "user", "content": sentence(i, 3)},
                {"role": "assistant", "content": sentence(i + 3, 4)},
            ]
        }
        for i in range(16)
    ]
)
common = dict(processing_class=words)
remembered(
    "sft", trl.SFTTrainer(decoder(), options(trl.SFTConfig, "sft", max_length=16), train_dataset=texts, **common)
)
adapted = remembered(
    "sft with lora, packed talks",
    trl.SFTTrainer(
        decoder(), options(trl.SFTConfig, "lora", max_length=16, packing=True), train_dataset=talks,
        peft_config=lora(lora_dropout=0.1), **common,
    ),
)  # fmt: skip
remembered(
    "dpo", trl.DPOTrainer(decoder(), decoder(), options(trl.DPOConfig, "dpo", beta=0.2), train_dataset=pairs, **common)
)
remembered(
    "dpo with lora",
    trl.DPOTrainer(
        decoder(), args=options(trl.DPOConfig, "dpo-lora", loss_type=["ipo"]), train_dataset=pairs,
        peft_config=lora(), **common,
    ),
)  # fmt: skip
remembered(
    "reward",
    trl.RewardTrainer(scorer(), options(trl.RewardConfig, "reward", max_length=16), train_dataset=pairs, **common),
)


def rewards(completions, **kwargs):
    return [
        sum(word in ("good", "sun", "cat") for word in text.split()) - 0.1 * len(text.split()) for text in completions
    ]


remembered(
    "grpo with lora",
    trl.GRPOTrainer(
        decoder(), rewards,
        options(trl.GRPOConfig, "grpo", num_generations=4, max_completion_length=8, beta=0.1, temperature=0.9),
        train_dataset=prompts, processing_class=words, peft_config=lora(),
    ),
)  # fmt: skip

file = os.path.join(folder, "adapter")
if not os.path.exists(file):
    adapted.save_pretrained(file)
loaded = peft.PeftModel.from_pretrained(decoder(), file).eval()
ids = torch.arange(4, 20)[None]
with torch.no_grad():
    logits = loaded(input_ids=ids).logits
    torch.testing.assert_close(adapted.eval()(input_ids=ids).logits, logits, rtol=1e-3, atol=1e-4)
numbers["loaded"] = [*logits[0, -1, :4].tolist(), logits.norm().item()]
print(json.dumps({"losses": losses, "numbers": numbers}))
