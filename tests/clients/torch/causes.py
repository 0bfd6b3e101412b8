"""Programs that fill the card in one way while another one is easier to see.

    causes.py odd | odd_leak | graphs | widths | teacher | labels | double | retry | skipped | scores

`odd`: one line keeps tensors of 6.8 MiB, of which two fit into a segment, so that a third of each is left over. `odd_leak`: a training that
keeps one of them of each step. `graphs`: a captured graph of some tens of MiB, and a list. `widths`: ever wider models, made on the card,
and batches of one size. `teacher`: from a step on, a function without gradients makes labels of a larger batch within each step. `labels`: a list
of each step's output, and an NVTX range around each step. `double`: a model on the card is converted to a wider type. `retry`: half of a batch
that failed in a backward pass, inside of the `except` block. `skipped`: a batch that never fits comes three times, and is left out. `scores`: without `no_grad`, by
a function of any name, the losses of many batches are summed up, of a model whose last layer keeps nothing for its own backward pass.
"""

import sys

import torch
from torch import nn

from common import OutOfMemoryError, say

WIDTH = 512
kept = []


def layers(count, width=WIDTH):
    return nn.Sequential(*[one for _ in range(count) for one in (nn.Linear(width, width), nn.ReLU())]).cuda()


def batch(rows=1024):
    return torch.empty(rows, WIDTH, device="cuda")


def step(net, rows=1024):
    given = net(batch(rows))
    given.mean().backward()
    net.zero_grad()
    return given.detach()


def odd():
    source = torch.empty(4096 * 435, device="cuda")
    while True:
        kept.append(source.clone())


def odd_leak():
    net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 435)).cuda()
    while True:
        kept.append(step(net, 4096))


def graphs():
    net, given = layers(4), torch.empty(16384, WIDTH, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        net(given)
        with torch.cuda.graph(graph):
            kept.append(net(given))
    while True:
        graph.replay()
        kept.append(torch.empty(3 << 20, device="cuda"))


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(64, width)
        self.more = nn.ModuleList([nn.Linear(width, width) for _ in range(3)])

    def forward(self, given):
        given = torch.relu(self.first(given))
        for layer in self.more:
            given = torch.relu(layer(given))
        return given


def widths():
    for width in [128, 256, 512, 1024, 2048, 4096]:
        with torch.device("cuda"):
            net = Net(width)
        for _ in range(20):
            net(torch.empty(8192, 64, device="cuda")).mean().backward()
            net.zero_grad()


def teacher():
    net, old = layers(3), layers(3)

    @torch.no_grad()
    def pseudo_labels(given):
        return old(given.repeat(100, 1)).view(100, -1, WIDTH).mean(0)

    for count in range(100):
        given = batch(2048)
        loss = net(given).mean()
        if count >= 50:
            loss = loss + (net(given) - pseudo_labels(given)).square().mean()
        loss.backward()
        net.zero_grad()


def labels():
    net = layers(2)
    for count in range(1 << 20):
        torch.cuda.nvtx.range_push(f"step {count}")
        kept.append(step(net, 1024))
        torch.cuda.nvtx.range_pop()


def double():
    nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(80)]).cuda().double()


def retry():
    net = layers(6)
    for _ in range(8):
        step(net)

    def run(rows):
        given = [batch(rows)]
        for layer in net:
            given.append(layer(given[-1]))
        sum(one.mean() for one in given).backward()

    rows = 16000
    try:
        run(rows)
    except OutOfMemoryError:
        run(rows // 2)


def skipped():
    net = nn.Sequential(nn.Linear(WIDTH, 1448), nn.ReLU(), nn.Linear(1448, 1448), nn.ReLU(), nn.Linear(1448, WIDTH)).cuda()
    for count in range(120):
        try:
            step(net, [724, 1448, 2896][count % 3] if count % 40 < 39 else 31800)
        except OutOfMemoryError:
            net.zero_grad()
            torch.cuda.empty_cache()


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.more, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, given):
        given = torch.relu(self.first(given))
        given = torch.relu(self.more(given))
        return self.last(given)


def scores():
    net = Scorer().cuda()
    target = torch.zeros(1024, dtype=torch.long, device="cuda")

    def loss():
        return nn.functional.cross_entropy(net(batch()), target)

    for _ in range(6):
        loss().backward()
        net.zero_grad()

    def score_set():
        total = 0
        while True:
            total = total + loss()

    score_set()


try:
    globals()[sys.argv[1]]()
except OutOfMemoryError:
    pass
say("kept", len(kept))
