"""transformers' Trainer and models (also through peft and trl), out of memory in a phase that is known. Nothing is downloaded."""

import os
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("WANDB_DISABLED", "true")

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from common import MIB, fill, fill_before_step, run

LENGTH, BATCH = 512, 4
PACKAGE = os.environ.get("PACKAGE", "transformers")


def config():
    return LlamaConfig(
        vocab_size=4096, hidden_size=1024, intermediate_size=4096, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=8,
        pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )


class Model(LlamaForCausalLM):
    """The card is full where `full` says."""

    full = None

    def forward(self, *arguments, **more):
        if self.full == ("forward" if self.training else "evaluation"):
            fill()
        out = super().forward(*arguments, **more)
        if self.full == "backward":
            fill()
        return out


def model(full=None):
    made = Model(config())
    made.full = full
    if PACKAGE == "peft":
        from peft import LoraConfig, get_peft_model

        made = get_peft_model(made, LoraConfig(r=256, target_modules=["q_proj", "v_proj", "up_proj"], task_type="CAUSAL_LM"))
    return made


def data(count=8):
    ids = torch.ones(LENGTH, dtype=torch.long)
    return [{"input_ids": ids, "labels": ids, "attention_mask": torch.ones_like(ids)} for _ in range(count)]


def arguments(kind=TrainingArguments, **more):
    folder = tempfile.mkdtemp(prefix="gpuoom")
    return kind(
        output_dir=folder, per_device_train_batch_size=BATCH, per_device_eval_batch_size=BATCH, max_steps=2, report_to=[],
        disable_tqdm=True, logging_steps=100, remove_unused_columns=False, **({"save_strategy": "no"} | more),
    )


def trainer(made, callbacks=(), **more):
    if PACKAGE == "trl":
        return of_trl(made, callbacks, **more)
    return Trainer(model=made, args=arguments(**more), train_dataset=data(), eval_dataset=data(), callbacks=list(callbacks))


def of_trl(made, callbacks, **more):
    """Its supervised fine-tuning, on numbers of tokens, as there is no tokenizer."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast
    from trl import SFTConfig, SFTTrainer

    words = Tokenizer(models.WordLevel({"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3}, unk_token="<unk>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    rows = Dataset.from_list([{"input_ids": [1] * LENGTH} for _ in range(8)])
    args = arguments(SFTConfig, max_length=LENGTH, bf16=False, **more)
    return SFTTrainer(model=made, args=args, train_dataset=rows, eval_dataset=rows, processing_class=tokenizer, callbacks=list(callbacks))


def train(full=None, callbacks=(), **more):
    trainer(model(full), callbacks, **more).train()


def loading():
    made = model()
    fill()
    train_of = trainer(made)
    train_of.train()


def optimizer(**more):
    fill_before_step()
    train(**more)


def evaluate(name="evaluate"):
    used = trainer(model("evaluation"))
    getattr(used, name)(*([used.eval_dataset] if name == "predict" else []))


def generate():
    made = model().cuda().eval()
    ids = torch.ones(BATCH, LENGTH, dtype=torch.long, device="cuda")
    fill()
    made.generate(ids, max_new_tokens=4, do_sample=False)


def saved():
    folder = tempfile.mkdtemp(prefix="gpuoom")
    LlamaForCausalLM(config()).save_pretrained(folder)
    return folder


def from_pretrained(**more):
    folder = saved()
    torch.cuda.init()
    fill()
    AutoModelForCausalLM.from_pretrained(folder, **more)


def resumed():
    """An optimizer's state that is loaded again."""
    used = trainer(model(), save_strategy="steps", save_steps=2)
    used.train()
    folder = used.args.output_dir + "/checkpoint-2"
    del used
    again = trainer(model().cuda())
    fill()
    again.train(resume_from_checkpoint=folder)


SCENARIOS = {
    "loading": ("loading", "_move_model_to_device", loading),
    "forward": ("forward", "compute_loss", lambda: train("forward")),
    "backward": ("backward", "backward", lambda: train("backward")),
    "checkpointed": ("backward", "backward", lambda: train("backward", gradient_checkpointing=True)),
    "optimizer": ("optimizer", "_init_group", optimizer),
    "clipped": ("optimizer", "_init_group", lambda: optimizer(max_grad_norm=1.0, gradient_accumulation_steps=2)),
    "adafactor": ("optimizer", "step", lambda: optimizer(optim="adafactor")),
    "evaluate": ("evaluation", "prediction_step", evaluate),
    "predict": ("evaluation", "prediction_step", lambda: evaluate("predict")),
    "generate": ("evaluation", "generate", generate),
    "pretrained": ("loading", "from_pretrained", lambda: from_pretrained(device_map="cuda")),
    "resumed": ("loading", "load_state_dict", resumed),
}

if __name__ == "__main__":
    run(SCENARIOS)
