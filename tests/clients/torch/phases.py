"""Runs out of memory in a part of a training that it knows, and says in which: before the call, and where the error is caught.

    phases.py SCENARIO

The line that it names is that of the call into PyTorch, or into the function of its own that is given to PyTorch.
"""

import io
import os
import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

from common import MIB, OutOfMemoryError, say

# In older versions a class that says less.
AcceleratorError = getattr(torch, "AcceleratorError", RuntimeError)
WIDTH = 2048
STEP = 2 * MIB
ballast = []
under_way = None


def now(phase):
    """The call comes on the next line of whoever calls this."""
    global under_way
    under_way = phase
    caller = sys._getframe(1)
    say("phase", f"{phase}, {caller.f_code.co_name}, line {caller.f_lineno + 1}")


def fill(leave=4 * MIB):
    """Takes what is free of the card but for so much."""
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info()[0]
    ballast.append(torch.empty((free - leave) // STEP * STEP, dtype=torch.uint8, device="cuda"))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, batch):
        return torch.relu(self.inner(batch))


class Wide(Layer):
    """Takes much more on the way than it gives."""

    def forward(self, batch):
        return super().forward(torch.cat([batch] * 8))[: len(batch)]


class Net(nn.Module):
    def __init__(self, again=None):
        super().__init__()
        self.first, self.second, self.again = Layer() if again is None else Wide(), Layer(), again

    def forward(self, batch):
        if self.again is None:
            return self.second(self.first(batch))
        return self.second(checkpoint(self.first, batch, use_reentrant=self.again))


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor):
        return tensor * 2

    @staticmethod
    def backward(ctx, grad):
        return torch.cat([grad, grad])[: len(grad)]


def batch(rows=64, **more):
    return torch.ones(rows, WIDTH, device="cuda", **more)


def forward():
    net, rows = Net().cuda(), batch(8192)
    fill()
    now("forward")
    net(rows)


def backward():
    net = Net().cuda()
    loss = net(batch()).sum()
    fill()
    now("backward")
    loss.backward()


def backward_retained():
    weight = nn.Parameter(batch(WIDTH))
    loss = (weight @ weight).sum()
    loss.backward(retain_graph=True)
    weight.grad = None
    fill()
    now("backward")
    loss.backward(retain_graph=True)


def backward_recomputed(reentrant):
    """What is computed again does not fit."""
    net = Net(reentrant).cuda()
    loss = net(batch(2048, requires_grad=True)).sum()
    fill(72 * MIB)
    now("backward")
    loss.backward()


def backward_function():
    weight = nn.Parameter(batch(WIDTH))
    loss = Doubled.apply(weight).sum()
    fill(20 * MIB)
    now("backward")
    loss.backward()


def gradients():
    weight = nn.Parameter(batch(WIDTH))
    loss = (weight * 2).sum()
    fill()
    now("backward")
    torch.autograd.grad(loss, weight)


def optimizer(kind, **options):
    net = Net().cuda()
    steps = kind(net.parameters(), lr=1e-3, **options)
    net(batch()).sum().backward()
    fill()
    now("optimizer")
    steps.step()


def closure():
    """The optimizer runs a forward pass."""
    net, rows = Net().cuda(), batch(8192)
    steps = torch.optim.SGD(net.parameters(), lr=1e-3)

    def again():
        now("forward")
        return net(rows)

    fill()
    steps.step(again)


@torch.no_grad()
def evaluate_decorated(net, rows):
    return net(rows)


def evaluation(decorated):
    net, rows = Net().cuda().eval(), batch(8192)
    fill()
    if decorated:
        now("evaluation")
        evaluate_decorated(net, rows)
    else:
        with torch.no_grad():
            # No frame tells of the block.
            now("forward")
            net(rows)


def evaluation_with_gradients():
    net, rows = Net().cuda().eval(), batch(8192)
    fill()
    now("forward")
    net(rows)


def model_to():
    net = Net()
    torch.cuda.init()
    fill(STEP)
    now("loading")
    net.to("cuda")


def checkpoint_to_card():
    file = io.BytesIO()
    torch.save(Net().state_dict(), file)
    file.seek(0)
    fill(STEP)
    now("loading")
    torch.load(file, map_location="cuda")


def optimizer_state():
    net = Net().cuda()
    steps = torch.optim.Adam(net.parameters())
    net(batch()).sum().backward()
    steps.step()
    state = steps.state_dict()
    for one in state["state"].values():
        one.update({name: value.cpu() for name, value in one.items()})
    fresh = torch.optim.Adam(net.parameters())
    fill()
    now("loading")
    fresh.load_state_dict(state)


def capture():
    net, rows = Net().cuda(), batch(8192)
    graph = torch.cuda.CUDAGraph()
    fill()
    with torch.cuda.graph(graph):
        now("capture")
        net(rows)


class Samples(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return torch.ones(self.size, dtype=torch.uint8, device=self.device)

    device, size = "cuda", 32 * MIB


def loader():
    torch.cuda.init()
    fill()
    loader = iter(DataLoader(Samples(), batch_size=1))
    now("loading")
    next(loader)


class MoreThanTheCard(Samples):
    size = 4096 * MIB


def loader_worker():
    """The worker that uses the card is a process of its own, and hands its error on."""
    torch.cuda.init()
    loader = DataLoader(MoreThanTheCard(), batch_size=1, num_workers=1, multiprocessing_context="spawn")
    now("loading")
    next(iter(loader))


class OnHost(Samples):
    device = "cpu"


def loader_pinned():
    """The thread that pins batches gets no memory (GPUOOM_INJECT), and hands its error on."""
    torch.cuda.init()
    loader = DataLoader(OnHost(), batch_size=1, num_workers=1, pin_memory=True, multiprocessing_context="fork")
    now("loading")
    next(iter(loader))


SCENARIOS = {
    "forward": forward,
    "backward": backward,
    "backward-retained": backward_retained,
    "backward-reentrant": lambda: backward_recomputed(True),
    "backward-recomputed": lambda: backward_recomputed(False),
    "backward-function": backward_function,
    "gradients": gradients,
    "adamw": lambda: optimizer(torch.optim.AdamW),
    "adam-loop": lambda: optimizer(torch.optim.Adam, foreach=False),
    "adam-fused": lambda: optimizer(torch.optim.Adam, fused=True),
    "sgd": lambda: optimizer(torch.optim.SGD, momentum=0.9),
    "closure": closure,
    "evaluation": lambda: evaluation(True),
    "evaluation-block": lambda: evaluation(False),
    "evaluation-with-gradients": evaluation_with_gradients,
    "model-to": model_to,
    "checkpoint-to-card": checkpoint_to_card,
    "optimizer-state": optimizer_state,
    "capture": capture,
    "loader": loader,
    "loader-worker": loader_worker,
    "loader-pinned": loader_pinned,
}


def main(scenario):
    try:
        SCENARIOS[scenario]()
    except OutOfMemoryError:
        say("out of memory in", under_way)
    except AcceleratorError as error:
        say("out of memory in", f"{under_way}, by {type(error).__name__}")
    # When Python goes, PyTorch's own threads may end the program by `terminate`.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
