"""DeepSpeed's engine, out of memory in a phase that is known. The first of four processes, by PyTorch's stand-in for a group."""

import os

import torch
from torch.testing._internal.distributed.fake_pg import FakeStore

os.environ |= {"DS_ACCELERATOR": "cuda", "LOCAL_RANK": "0"}
import deepspeed

from common import Net, fill, fill_before_step, rows, run


def engine(full=None, stage=0):
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    settings = {
        "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": stage}, "zero_allow_untested_optimizer": True,
        "bf16": {"enabled": stage > 0},
    }
    net = Net(full)
    steps = torch.optim.AdamW(net.parameters())
    return deepspeed.initialize(model=net, optimizer=steps, config=settings, dist_init_required=False)[0]


def train(used, before_step=False, count=2048):
    used.train()
    loss = used(rows("cuda", count).to(next(used.module.parameters()).dtype)).mean()
    used.backward(loss)
    if before_step:
        fill()
    used.step()


def loading():
    torch.cuda.init()
    fill()
    engine()


def gathered():
    used = engine(stage=3)
    torch.cuda.synchronize()
    batch = rows("cuda", 1).bfloat16()
    fill()
    used(batch)


SCENARIOS = {
    "loading": ("loading", "_configure_distributed_model", loading),
    "forward": ("forward", "_call_impl", lambda: train(engine("forward"))),
    "backward": ("backward", "backward", lambda: train(engine("backward"))),
    "optimizer": ("optimizer", "_init_group", lambda: train(engine(), True)),
    "zero1-forward": ("forward", "_call_impl", lambda: train(engine("forward", 1))),
    "zero1-backward": ("backward", "backward", lambda: train(engine("backward", 1))),
    "zero1-optimizer": ("optimizer", "step", lambda: train(engine(stage=1), True)),
    "zero3-gather": ("collective", "all_gather_coalesced", gathered),
    "zero3-backward": ("backward", "backward", lambda: train(engine("backward", 3))),
    "zero3-optimizer": ("optimizer", "step", lambda: train(engine(stage=3), True)),
}

if __name__ == "__main__":
    run(SCENARIOS)
