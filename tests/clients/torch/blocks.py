"""Programs of every sort, and at their end PyTorch's own account of its blocks:

    blocks.py SCENARIO|all JSON

The JSON has the blocks that are given out ([{"device", "address", "bytes"}]), the segments ([{"device", "address", "bytes",
"allocated", "pieces"}]), and of each device the bytes allocated and reserved.
The process ends right after that, without giving anything back: the last record of the trace is the same moment.
"""

import gc
import json
import os
import signal
import sys
import threading

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from common import MIB, OutOfMemoryError, say

STEPS = 4


def network(width=64, device="cuda"):
    return nn.Sequential(nn.Linear(32, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 8)).to(device)


def step(model, optimizer, batch):
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def training(optimizer=torch.optim.AdamW, device="cuda", steps=STEPS):
    model = network(device=device)
    chosen = optimizer(model.parameters(), lr=1e-3)
    for _ in range(steps):
        step(model, chosen, torch.randn(16, 32, device=device))
    return model, chosen


def transformer():
    layer = nn.TransformerEncoderLayer(32, 2, 64, batch_first=True)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).cuda()
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    for length in (5, 9, 3, 12, 7):
        step(model, optimizer, torch.randn(2, length, 32, device="cuda"))
    return model, optimizer


def retained_graph():
    model = network()
    return [model(torch.randn(16, 32, device="cuda")).sum() for _ in range(20)]


def evaluation_keeps_graphs():
    model, optimizer = training()
    model.eval()
    return [model(torch.randn(64, 32, device="cuda")) for _ in range(5)], optimizer


def evaluation():
    model, _ = training()
    with torch.no_grad():
        return [model(torch.randn(64, 32, device="cuda")) for _ in range(5)]


def checkpointed():
    model = network(128)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(STEPS):
        batch = torch.randn(16, 32, device="cuda", requires_grad=True)
        loss = checkpoint(model, batch, use_reentrant=False).sum() + checkpoint(model, batch, use_reentrant=True).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model, optimizer


def streams():
    other = torch.cuda.Stream()
    kept = []
    for index in range(20):
        block = torch.empty((index + 1) * 4096, device="cuda")
        with torch.cuda.stream(other):
            inside = torch.empty(8192, device="cuda")
            block.record_stream(other)
        if index % 3 == 0:
            kept.append(inside)
        del block, inside
    torch.cuda.synchronize()
    return kept


def devices():
    return [training(device=f"cuda:{index}", steps=2) for index in range(torch.cuda.device_count())]


def threads():
    results = []
    workers = [threading.Thread(target=lambda: results.append(training())) for _ in range(4)]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
    return results


def daemons():
    """Threads that Python does not wait for: they allocate on while it goes."""
    for _ in range(3):
        threading.Thread(target=lambda: [training(steps=1) for _ in range(1000)], daemon=True).start()
    return training()


class Dying:
    """Allocates while it is taken down, and while others are."""

    def __init__(self):
        self.own = torch.empty(1000, device="cuda")
        self.ring = self

    def __del__(self):
        torch.empty(5000, device="cuda").fill_(1)
        KEPT.append(torch.empty(300, device="cuda"))


KEPT = []


def dying():
    for _ in range(50):
        Dying()
    gc.collect()
    return KEPT


def custom_function():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(context, value):
            context.save_for_backward(value)
            return value * 2

        @staticmethod
        def backward(context, gradient):
            return torch.empty_like(gradient).copy_(gradient)

    weight = torch.randn(256, device="cuda", requires_grad=True)
    for _ in range(STEPS):
        Twice.apply(weight).sum().backward()
    return weight


def large():
    kept = [torch.empty(size * MIB, dtype=torch.uint8, device="cuda") for size in (1, 3, 12, 30, 200)]
    del kept[1:3]
    kept.append(torch.empty(10 * MIB, dtype=torch.uint8, device="cuda"))
    torch.cuda.empty_cache()
    return kept


def refused():
    kept = [torch.empty(64 * MIB, dtype=torch.uint8, device="cuda") for _ in range(3)]
    try:
        torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
    except OutOfMemoryError:
        kept.append(torch.empty(4096, device="cuda"))
    return kept


def graphs():
    """A captured step, whose memory lies in a pool of its own, and its replays."""
    model = network()
    batch = torch.randn(16, 32, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side), torch.no_grad():
        model(batch)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        result = model(batch)
    for _ in range(3):
        graph.replay()
    return graph, result


def signals():
    """A handler that allocates wherever Python looks for signals, also between an allocation's two halves."""
    caught = []

    is_over = False

    def again():
        signal.setitimer(signal.ITIMER_REAL, 0 if is_over else 0.001)

    def handler(*_):
        caught.append(torch.empty(700, device="cuda"))
        again()

    before = signal.signal(signal.SIGALRM, handler)
    again()
    try:
        kept = [training(steps=2) for _ in range(5)]
    finally:
        is_over = True
        again()
        signal.signal(signal.SIGALRM, before)
    return kept, caught


def observer():
    """Python runs inside the allocator, with its error under way."""
    seen = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *what: seen.append(what))
    for _ in range(3):
        try:
            torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
        except OutOfMemoryError:
            seen.append(torch.empty(600, device="cuda"))
    return seen


SCENARIOS = {
    function.__name__: function
    for function in (
        training, transformer, retained_graph, evaluation_keeps_graphs, evaluation, checkpointed, streams, devices,
        threads, dying, custom_function, large, refused,
        graphs, signals, observer,
    )
}


def pieces(segment):
    """Stretches of a segment that no tensor has, whatever PyTorch calls what lies in them."""
    states = [block["state"] == "active_allocated" for block in segment["blocks"]]
    return sum(not used and (index == 0 or states[index - 1]) for index, used in enumerate(states))


def account():
    blocks, segments = [], []
    for segment in torch.cuda.memory_snapshot():
        at, own = segment["address"], {name: segment[name] for name in ("device", "address")}
        segments.append({**own, "bytes": segment["total_size"], "allocated": segment["allocated_size"], "pieces": pieces(segment)})
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                blocks.append({"device": segment["device"], "address": at, "bytes": block["size"]})
            at += block["size"]
    used = [index for index in range(torch.cuda.device_count()) if torch.cuda.memory_reserved(index)]
    totals = {index: [torch.cuda.memory_allocated(index), torch.cuda.memory_reserved(index)] for index in used}
    counts = [torch.cuda.memory_stats(index) for index in used]
    given = sum(count["allocation.all.allocated"] for count in counts)
    taken = sum(count["allocation.all.freed"] for count in counts)
    return {"blocks": blocks, "segments": segments, "totals": totals, "given": given, "taken": taken}


def main(scenario, path):
    kept = [run() for name, run in SCENARIOS.items() if scenario in (name, "all")]
    if scenario == "daemons":
        # Python ends as it likes, with threads that are in the middle of an allocation.
        kept.append(daemons())
        sys.exit(0)
    torch.cuda.synchronize()
    # The asynchronous back end has no account of its own.
    if torch.cuda.get_allocator_backend() == "native":
        with open(path, "w") as file:
            json.dump(account(), file)
    say("scenarios", len(kept))
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
