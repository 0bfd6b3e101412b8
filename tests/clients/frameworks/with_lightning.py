"""Lightning's Trainer, out of memory in a phase that is known."""

import os
import tempfile

import torch
from torch.utils.data import DataLoader

from common import MIB, Net, fill, fill_before_step, rows, run

if os.environ.get("PACKAGE", "lightning").replace("-", "_") == "pytorch_lightning":
    import pytorch_lightning as pl
else:
    import lightning.pytorch as pl


class Trained(pl.LightningModule):
    def __init__(self, full=None, manual=False):
        super().__init__()
        self.net, self.full = Net(full), full
        self.automatic_optimization = not manual

    def training_step(self, batch, index):
        if self.full == "step":
            fill()
            return (batch @ batch).mean()
        loss = self.net(batch).mean()
        if not self.automatic_optimization:
            steps = self.optimizers()
            self.manual_backward(loss)
            steps.step()
        return loss

    def validation_step(self, batch, index):
        if self.full == "metric":
            fill()
            return (batch @ batch).mean()
        return self.net(batch).mean()

    test_step = validation_step
    predict_step = validation_step

    def on_before_optimizer_step(self, *_):
        if self.full == "hook":
            fill()
            self.more = torch.ones(64 * MIB, device="cuda")

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


def data():
    # A batch of this many rows, as they are.
    return DataLoader(rows(count=4096), batch_size=2048)


def trainer(**more):
    folder = tempfile.mkdtemp(prefix="gpuoom")
    return pl.Trainer(
        accelerator="gpu", devices=1, max_steps=2, logger=False, enable_progress_bar=False, enable_model_summary=False,
        enable_checkpointing=False, default_root_dir=folder, **more,
    )


def fit(full, validate=False, manual=False, **more):
    model = Trained(full, manual)
    trainer(num_sanity_val_steps=2 if validate else 0, **more).fit(model, data(), data() if validate else None)


def loading():
    fill()
    fit(None)


def batch_to_card():
    class Moves(pl.Callback):
        def on_train_start(self, *_):
            fill()

    fit(None, callbacks=[Moves()])


def optimizer(manual=False, **more):
    """The trainer hands the step all that comes before it as a closure; this callback is the last of it."""

    class Full(pl.Callback):
        def on_before_optimizer_step(self, *_):
            fill()

    if manual:
        fill_before_step()
    fit(None, manual=manual, callbacks=[Full()], **more)


def test(name):
    getattr(trainer(), name)(Trained("evaluation"), data())


def checkpoint():
    """A checkpoint that is loaded again, with the optimizer's state."""
    model, path = Trained(), tempfile.mkdtemp(prefix="gpuoom") + "/last.ckpt"
    first = trainer()
    first.fit(model, data())
    first.save_checkpoint(path)
    del first
    fill(STATE)
    trainer().fit(Trained(), data(), ckpt_path=path)


STATE = 40 * MIB

SCENARIOS = {
    "loading": ("loading", "model_to_device", loading),
    "batch": ("none", "transfer_batch_to_device", batch_to_card),
    "forward": ("forward", "training_step", lambda: fit("forward")),
    "loss": ("forward", "training_step", lambda: fit("step")),
    "manual-forward": ("forward", "training_step", lambda: fit("forward", manual=True)),
    "backward": ("backward", "backward", lambda: fit("backward")),
    "manual-backward": ("backward", "manual_backward", lambda: fit("backward", manual=True)),
    "optimizer": ("optimizer", "_init_group", optimizer),
    "manual-optimizer": ("optimizer", "_init_group", lambda: optimizer(manual=True)),
    "accumulated": ("optimizer", "_init_group", lambda: optimizer(accumulate_grad_batches=2)),
    "hook": ("none", "on_before_optimizer_step", lambda: fit("hook")),
    "sanity": ("evaluation", "validation_step", lambda: fit("evaluation", validate=True)),
    "metric": ("evaluation", "validation_step", lambda: fit("metric", validate=True)),
    "validate": ("evaluation", "validation_step", lambda: test("validate")),
    "test": ("evaluation", "test_step", lambda: test("test")),
    "predict": ("evaluation", "predict_step", lambda: test("predict")),
    "checkpoint": ("loading", "restore_training_state", checkpoint),
    "mixed": ("optimizer", "_init_group", lambda: optimizer(precision="16-mixed")),
    "bf16": ("backward", "backward", lambda: fit("backward", precision="bf16-mixed")),
}

if __name__ == "__main__":
    run(SCENARIOS)
