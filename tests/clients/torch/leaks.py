"""Programs that keep something of each step, and programs that look like it and don't:

    leaks.py SCENARIO [STEPS]

After each step PyTorch's own count is printed: what tensors hold then.
"""

import collections
import os
import sys

import torch
from torch import nn

from common import MIB, say

KEPT = []


def network(width=256):
    return nn.Sequential(nn.Linear(512, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 64)).cuda()


def batch_of(size=256):
    return torch.randn(size, 512, device="cuda")


def tensor(mebibytes):
    return torch.empty(mebibytes * MIB, dtype=torch.uint8, device="cuda")


class Training:
    """A plain training: forward, backward, step."""

    def __init__(self, optimizer=torch.optim.AdamW):
        self.model = network()
        self.optimizer = optimizer(self.model.parameters(), lr=1e-3)

    def step(self, size=256):
        loss = self.model(batch_of(size)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss


def losses_with_graphs(steps):
    """The loss of each step is kept, and with it what its graph saved: backward passes run on another one."""
    training, losses = Training(), []
    for _ in range(steps):
        training.step()
        losses.append(training.model(batch_of(4096)).square().mean())
        yield


def global_list(steps):
    training = Training()
    for _ in range(steps):
        training.step()
        keep_features()
        yield


def keep_features():
    KEPT.append(tensor(4))


def sgd_global_list(steps):
    """Its optimizer allocates nothing once it runs."""
    training = Training(torch.optim.SGD)
    for _ in range(steps):
        training.step()
        keep_features()
        yield


def inner_gradients(steps):
    """One step of meta-learning: each task asks for gradients inside it, and the graphs of all are needed at its end."""
    weights = [torch.rand(512, 512, device="cuda", requires_grad=True) for _ in range(4)]
    loss = 0
    for _ in range(steps):
        adapted = weights
        for _ in range(3):
            gradients = torch.autograd.grad(through(adapted), adapted, create_graph=True)
            adapted = [weight - 0.1 * gradient for weight, gradient in zip(adapted, gradients)]
        loss = loss + through(adapted)
        yield
    loss.backward()


def through(weights):
    state = torch.rand(256, 512, device="cuda")
    for weight in weights:
        state = state @ weight
    return state.sum()


def hook(steps):
    """A hook is registered in each step and never removed: it holds a tensor."""
    training = Training()
    for _ in range(steps):
        register_probe(training.model)
        training.step()
        yield


def register_probe(model):
    mask = tensor(6)
    model[0].register_forward_hook(lambda *_: mask.numel() and None)


def closure(steps):
    training = Training()
    for _ in range(steps):
        training.step()
        KEPT.append(make_callback())
        yield


def make_callback():
    scratch = tensor(5)
    return lambda: scratch.sum()


def no_training_list(steps):
    """Nothing but tensors that come and go, and one that stays."""
    model = network()
    with torch.no_grad():
        for _ in range(steps):
            model(batch_of(4096))
            keep_features()
            yield


def floats(steps):
    training, losses = Training(), []
    for _ in range(steps):
        losses.append(float(training.step().detach()))
        yield


def cache_that_fills(steps):
    training, cache = Training(), {}
    for step in range(steps):
        training.step()
        key = step % (steps // 3)
        if key not in cache:
            cache[key] = tensor(8)
        yield


def cache_just_full(steps):
    """The oldest entry makes room for the newest, over the last steps only."""
    training, cache = Training(torch.optim.SGD), collections.OrderedDict()
    for step in range(steps):
        if len(cache) >= steps - 4:
            cache.popitem(last=False)
        cache[step] = tensor(8)
        training.step()
        yield


def unfreezing(steps):
    """Every third step trains one more layer: gradients and the optimizer's state grow, and the run ends."""
    layers = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(steps // 3)]).cuda()
    for parameter in layers.parameters():
        parameter.requires_grad = False
    optimizer = torch.optim.AdamW(layers.parameters(), lr=1e-3)
    for step in range(steps):
        if step % 3 == 0:
            for parameter in layers[-1 - step // 3].parameters():
                parameter.requires_grad = True
        layers(torch.randn(64, 1024, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        yield


def sweep(steps):
    """Models one after the other, each with one more layer than the last, which is given back before."""
    for step in range(steps):
        model = optimizer = None
        model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(step + 2)]).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        model(batch_of()).square().mean().backward()
        optimizer.step()
        yield


def replay_buffer(steps):
    training, buffer = Training(), collections.deque(maxlen=steps // 3)
    for _ in range(steps):
        buffer.append(tensor(8))
        training.step()
        yield


def growing_batch(steps):
    training, batches = Training(), None
    for step in range(steps):
        batches = batch_of(1024 + 512 * step)
        training.step(1024 + 512 * step)
        yield batches


def warm_up(steps):
    yield from (Training.step(training) for training in [Training()] for _ in range(steps))


def evaluations(steps):
    training = Training()
    for step in range(steps):
        training.step()
        if step % 5 == 4:
            with torch.no_grad():
                outputs = [training.model(batch_of(8192)) for _ in range(8)]
            del outputs
        yield


def accumulation(steps):
    training = Training()
    for step in range(steps):
        training.model(batch_of()).square().mean().backward()
        if step % 4 == 3:
            training.optimizer.step()
            training.optimizer.zero_grad()
        yield


def requests(steps):
    """A cache that grows with each token of a request and is given back at its end, chunk by chunk or as one tensor that grows."""
    model = network()
    with torch.no_grad():
        for step in range(steps):
            if step % (steps // 3) == 0:
                chunks, whole = [], tensor(1)
            model(batch_of(4096))
            chunks.append(tensor(3))
            whole = torch.cat([whole, tensor(1)])
            yield


def one_growing_tensor(steps):
    model, whole = network(), tensor(1)
    with torch.no_grad():
        for _ in range(steps):
            model(batch_of(4096))
            whole = torch.cat([whole, tensor(2)])
            yield


SCENARIOS = {
    function.__name__: function
    for function in (
        losses_with_graphs, global_list, sgd_global_list, hook, closure, no_training_list, floats, cache_that_fills,
        replay_buffer, growing_batch, warm_up, evaluations, accumulation, requests, one_growing_tensor, cache_just_full,
        unfreezing, sweep, inner_gradients,
    )
}


def main(scenario, steps):
    for _ in SCENARIOS[scenario](steps):
        say("allocated", torch.cuda.memory_allocated())
    # All is given back. Python's own end is left out: threads of PyTorch may end it by `terminate` (about one run in thirty).
    KEPT.clear()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 48)
