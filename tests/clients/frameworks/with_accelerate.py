"""A loop with accelerate's Accelerator, out of memory in a phase that is known."""

import tempfile

import torch
from accelerate import Accelerator, dispatch_model, init_empty_weights, load_checkpoint_and_dispatch
from torch.utils.data import DataLoader

from common import MIB, Net, fill, fill_before_step, rows, run


def prepared(full=None, **more):
    accelerator = Accelerator(**more)
    net = Net(full)
    steps = torch.optim.AdamW(net.parameters())
    return accelerator, *accelerator.prepare(net, steps, DataLoader(rows(count=4096), batch_size=2048))


def train(full=None, **more):
    accelerator, net, steps, data = prepared(full, **more)
    for batch in data:
        with accelerator.accumulate(net):
            loss = net(batch).mean()
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(net.parameters(), 1.0)
            steps.step()
            steps.zero_grad()
    return accelerator


def loading():
    fill()
    prepared()


def batch():
    _, _, _, data = prepared()
    fill()
    next(iter(data))


def optimizer(**more):
    fill_before_step()
    train(**more)


def evaluate():
    _, net, _, data = prepared("evaluation")
    net.eval()
    with torch.inference_mode():
        for batch in data:
            net(batch)


def gather():
    """One process: `gather` gives back what it got."""
    accelerator, net, _, data = prepared()
    out = net(next(iter(data)))
    fill(0)
    accelerator.gather_for_metrics(out)
    out.repeat(64, 1)


def restored():
    accelerator = train()
    folder = tempfile.mkdtemp(prefix="gpuoom")
    accelerator.save_state(folder)
    fill()
    accelerator.load_state(folder)


def saved():
    folder = tempfile.mkdtemp(prefix="gpuoom")
    torch.save(Net().state_dict(), folder + "/pytorch_model.bin")
    return folder


def dispatched():
    net = Net()
    fill()
    dispatch_model(net, {"": 0}, force_hooks=True)


def checkpoint():
    folder = saved()
    with init_empty_weights():
        net = Net()
    fill()
    load_checkpoint_and_dispatch(net, folder, device_map={"": 0})


def offloaded():
    """Weights that come to the card for each forward pass."""
    net = dispatch_model(Net(), {"first": 0, "second": "cpu"}, main_device=0)
    batch = rows("cuda")
    fill(20 * MIB)
    net(batch)


SCENARIOS = {
    "loading": ("loading", "prepare_model", loading),
    "batch": ("loading", "__iter__", batch),
    "forward": ("forward", "_call_impl", lambda: train("forward")),
    "mixed": ("forward", "_call_impl", lambda: train("forward", mixed_precision="bf16")),
    "backward": ("backward", "backward", lambda: train("backward")),
    "optimizer": ("optimizer", "_init_group", optimizer),
    "scaled": ("optimizer", "_init_group", lambda: optimizer(mixed_precision="fp16")),
    "evaluate": ("forward", "_call_impl", evaluate),
    "gather": ("none", "gather", gather),
    "restored": ("loading", "load_accelerator_state", restored),
    "dispatched": ("loading", "dispatch_model", dispatched),
    "checkpoint": ("loading", "load_checkpoint_and_dispatch", checkpoint),
    "offloaded": ("forward", "_call_impl", offloaded),
}

if __name__ == "__main__":
    run(SCENARIOS)
