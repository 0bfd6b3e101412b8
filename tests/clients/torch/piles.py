"""Trains for some steps that keep nothing, and then keeps something from batch to batch until the card is full.

    piles.py graphs | predictions | hook | thread | loss | garbage | image | larger |
             rounds | mosaic | users | validates | reloads | limited |
             pool | pool_and_leak | models | cloned | buffer [STEPS] | summed | few |
             exceptions | forgets | dataset | adam | bank | converts | forces |
             bank_and_step | made_on_the_card | one_layer

`graphs`: an evaluation without `no_grad`, whose outputs keep their graphs. `predictions`: one with it, whose outputs stay. `hook`: a hook
of a parameter's keeps each gradient. `thread`: no training, and a thread of the program's own that is called as PyTorch's are. `loss`: the
training's own loss is computed by a function that is called `evaluate`, for more and more batches before one backward pass. `garbage`:
no training, and objects that refer to each other while the collector is off. `image`: no training, and one input without gradients whose
result does not fit. `larger`: equal steps, an evaluation without gradients, and one much larger batch by another line. `rounds`: what each
epoch keeps is dropped at its end, and the last epoch is longer. `mosaic`: no training, and an image that grows strip by strip. `users`: a dict
of each user's last output, by ever more users. `validates`: the training's step is a function that is called `validate`, and one batch is much
larger. `reloads`: each hour's model is kept, with predictions between. `limited`: a list of outputs, below a limit that PyTorch keeps by itself.
`pool`: no training, and a pool of the program's own (torch.cuda.MemPool) that keeps what was given back in it. `pool_in_pieces`: one
that keeps a tensor in each of its segments, and pieces between them. `pool_and_leak`: a small pool of
that sort, and a list of each step's output. `models`: one model after another, all kept, and nothing between. `cloned`: a list that is cloned
and gets longer with each step. `buffer`: a buffer with a bound, which lies in pieces with the training's blocks. `summed`: an evaluation without
`no_grad`, of which nothing but the sum of its losses is kept. `few`: five steps, each of which keeps all that it computed.
`exceptions`: batches of half the size after each error, all of which are kept. `forgets`: the same, and none is. `dataset`: the first step
of an optimizer beside data that are much larger than its state. `adam`: the same without data. `bank`: data
in the buffers of a module are moved to the card. `converts`: a model on the card gets another type. `forces`: no training, and a gradient
in each of many steps, all of which are kept for a backward pass at the end. `bank_and_step`: the first step of an optimizer beside such a
bank. `made_on_the_card`: one of a model whose weights were made on the card. `one_layer`: results of a model of one layer are kept.
"""

import ctypes
import gc
import sys
import threading
from collections import deque
from random import Random

import torch
from torch import nn

from common import OutOfMemoryError, say

WIDTH = 512
STEPS = 12
kept = []


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, batch):
        hidden = torch.relu(self.first(batch))
        return torch.sigmoid(self.second(hidden))


def batch():
    return torch.randn(2048, WIDTH, device="cuda")


def train(net, steps):
    for _ in range(steps):
        net(batch()).sum().backward()
        net.zero_grad()


def evaluate(net):
    while True:
        kept.append(net(batch()))


def spy(gradient):
    kept.append(gradient.clone())


def prefetch():
    ctypes.CDLL(None).prctl(15, b"pt_autograd_0", 0, 0, 0)
    try:
        while True:
            kept.append(batch())
    except OutOfMemoryError:
        say("kept", len(kept))


def train_by_sums(net):
    def evaluate():
        return net(batch()).pow(2).mean()

    for batches in (2, 4, 8, 16, 1 << 10):
        net.zero_grad()
        sum(evaluate() for _ in range(batches)).backward()


class Holder:
    def __init__(self):
        self.me, self.block = self, torch.empty(16 << 20, dtype=torch.uint8, device="cuda")


def make_garbage():
    gc.disable()
    while True:
        Holder()
        kept.append(None)


def deep():
    return nn.Sequential(*[layer for _ in range(8) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]).cuda()


def train_larger():
    net = deep()
    train(net, 30)
    with torch.no_grad():
        net(batch())
    net(torch.randn(60000, WIDTH, device="cuda")).sum().backward()


def train_in_rounds(net):
    for steps in (60, 60, 60, 60, 1 << 20):
        outputs = []
        for _ in range(steps):
            output = net(batch())
            output.sum().backward()
            net.zero_grad()
            outputs.append(output.detach()[:512].clone())


def infer(net):
    with torch.no_grad():
        net(torch.randn(170000, WIDTH, device="cuda"))


def paint():
    mosaic = batch()
    while True:
        mosaic = torch.cat([mosaic, batch()])
        torch.cuda.empty_cache()
        kept.append(None)


def serve():
    last, random = {}, Random(7)
    net = Net().cuda()
    with torch.inference_mode():
        for request in range(1 << 20):
            last[random.randrange(1 + request // 4)] = net(torch.randn(512, WIDTH, device="cuda"))
            kept[:] = last


def train_by_validate(net):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def validate(rows):
        net(torch.randn(rows, WIDTH, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(30):
        validate(2048)
    validate(150000)


def pool_of_its_own():
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        given_back = [torch.empty(24 << 20, dtype=torch.uint8, device="cuda") for _ in range(12)]
    del given_back
    while True:
        kept.append(torch.empty(30 << 20, dtype=torch.uint8, device="cuda"))


def pool_in_pieces():
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        blocks = [torch.empty(4 << 20, dtype=torch.uint8, device="cuda") for _ in range(60)]
    # One of each segment's five stays, so that no segment can be given back.
    kept.extend(blocks[::5])
    del blocks
    kept.append(torch.empty(300 << 20, dtype=torch.uint8, device="cuda"))


def leak_beside_a_pool(net):
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        given_back = torch.empty(24 << 20, dtype=torch.uint8, device="cuda")
    del given_back
    while True:
        output = net(batch())
        output.sum().backward()
        net.zero_grad()
        kept.append(output.detach())


def load_models():
    while True:
        kept.append(nn.Sequential(nn.Linear(2048, 1024), nn.Linear(1024, 512)).cuda())


def clone_all():
    global kept
    while True:
        kept = [block.clone() for block in kept] + [torch.empty(5 << 20, dtype=torch.uint8, device="cuda")]


def fill_a_buffer():
    buffer = deque(maxlen=40)
    weight = torch.empty(1024, 1024, device="cuda", requires_grad=True)
    for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 1 << 20):
        buffer.append(torch.empty(12 << 20, dtype=torch.uint8, device="cuda"))
        (torch.empty(512, 1024, device="cuda") @ weight).sum().backward()
        weight.grad = None
        kept.append(None)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 4, 512, batch_first=True), 4)
        self.head = nn.Linear(256, 256)

    def forward(self, rows):
        hidden = self.encoder(rows)
        return self.head(hidden)


def sum_losses():
    net = Classifier().cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def loss(rows):
        labels = torch.zeros(rows * 64, dtype=torch.long, device="cuda")
        return nn.functional.cross_entropy(net(torch.randn(rows, 64, 256, device="cuda")).view(-1, 256), labels)

    def evaluate():
        net.eval()
        total = 0.0
        while True:
            total += loss(12)
            kept.append(None)

    for _ in range(12):
        loss(8).backward()
        optimizer.step()
        optimizer.zero_grad()
    evaluate()


def keep_all(net):
    while True:
        output = net(torch.randn(11000, WIDTH, device="cuda"))
        loss = output.pow(2).sum()
        loss.backward(retain_graph=True)
        net.zero_grad()
        kept.append(loss)


def halve(keeps_errors):
    global kept
    net, rows = deep(), 60000
    while True:
        try:
            net(torch.randn(rows, WIDTH, device="cuda")).sum().backward()
            say("fits", rows)
            return
        except OutOfMemoryError as error:
            if len(kept) > 3:
                raise
            kept.append(error if keeps_errors else None)
            rows //= 2


def first_step(data_mib):
    net = nn.Sequential(*[nn.Linear(1024, 1024, bias=False) for _ in range(8)]).cuda()
    data = torch.empty(data_mib, 256, 1024, device="cuda")
    optimizer = torch.optim.Adam(net.parameters(), foreach=False)
    rows = data[0] if data_mib else torch.empty(1, 1024, device="cuda")
    net(rows).sum().backward()
    optimizer.step()


def step_beside_a_bank():
    bank = nn.Module()
    bank.register_buffer("rows", torch.empty(400 * 256, 1024))
    kept.append(bank.cuda())
    first_step(0)


def step_of_a_model_made_on_the_card():
    layers = [nn.Linear(1024, 4096, bias=False, device="cuda") for _ in range(8)]
    optimizer = torch.optim.Adam([layer.weight for layer in layers], foreach=False)
    rows = torch.empty(1, 1024, device="cuda")
    sum(layer(rows).sum() for layer in layers).backward()
    optimizer.step()


def keep_what_one_layer_computes():
    layer = nn.Linear(WIDTH, WIDTH, bias=False, device="cuda")
    for _ in range(40):
        layer(batch()).sum().backward()
        layer.zero_grad()
    with torch.no_grad():
        while True:
            kept.append(layer(batch()))


def reload():
    with torch.no_grad():
        while True:
            kept.append(deep())
            for _ in range(3):
                kept[-1](batch())


def keep_outputs(net):
    torch.cuda.set_per_process_memory_fraction(0.9)
    while True:
        output = net(batch())
        output.sum().backward()
        net.zero_grad()
        kept.append(output.detach())


class Bank(nn.Module):
    def __init__(self):
        super().__init__()
        for shard in range(40):
            self.register_buffer(f"shard{shard}", torch.empty(4000 + 37 * shard, 1024))


def convert():
    layers = nn.Sequential(*[nn.Linear(1024, 3000 + 117 * layer, bias=False) for layer in range(16)]).cuda()
    kept.append(layers)
    layers.to(torch.float64)


def follow_forces():
    weights = [torch.rand(256, 256, device="cuda", requires_grad=True) for _ in range(4)]
    position = torch.rand(2000, 256, device="cuda", requires_grad=True)
    while True:
        energy = position
        for weight in weights:
            energy = torch.tanh(energy @ weight)
        (force,) = torch.autograd.grad(energy.sum(), position, create_graph=True)
        position = position - 0.1 * force
        kept.append(len(kept))


def main(scenario):
    if scenario == "thread":
        thread = threading.Thread(target=prefetch)
        thread.start()
        thread.join()
        return
    net = Net().cuda()
    alone = {"loss": lambda: train_by_sums(net), "garbage": make_garbage, "image": lambda: infer(net), "larger": train_larger}
    alone |= {"rounds": lambda: train_in_rounds(net), "mosaic": paint, "users": serve, "reloads": reload}
    alone |= {"validates": lambda: train_by_validate(net), "limited": lambda: keep_outputs(net)}
    alone |= {"pool": pool_of_its_own, "pool_in_pieces": pool_in_pieces, "pool_and_leak": lambda: leak_beside_a_pool(net), "models": load_models}
    alone |= {"cloned": clone_all, "buffer": fill_a_buffer, "summed": sum_losses, "few": lambda: keep_all(net)}
    alone |= {"dataset": lambda: first_step(300), "adam": lambda: first_step(0)}
    alone |= {"bank_and_step": step_beside_a_bank, "made_on_the_card": step_of_a_model_made_on_the_card}
    alone |= {"one_layer": keep_what_one_layer_computes}
    alone |= {"bank": lambda: Bank().cuda(), "converts": convert, "forces": follow_forces}
    alone |= {"exceptions": lambda: halve(True), "forgets": lambda: halve(False)}
    alone = alone.get(scenario)
    if alone:
        try:
            alone()
        except OutOfMemoryError:
            pass
        say("kept", len(kept))
        return
    if scenario == "hook":
        net.first.weight.register_hook(spy)
    train(net, STEPS)
    try:
        if scenario == "graphs":
            evaluate(net)
        elif scenario == "predictions":
            with torch.no_grad():
                evaluate(net)
        else:
            train(net, 1 << 20)
    except OutOfMemoryError:
        say("kept", len(kept))


main(sys.argv[1])
