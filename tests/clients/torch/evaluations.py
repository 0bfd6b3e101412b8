"""Programs whose evaluations, or what is called so, decide whether memory lasts.

    evaluations.py epochs | offload | larger | archive | critic | test | policy | features | again | probe | snapshots | regulariser | sharpness

`epochs`: the outputs of each epoch's evaluation stay. `offload`: no training; the model goes to the card and back with each request, and
a result stays. `larger`: one evaluation without gradients, of a batch larger than all of the training. `archive`: `evaluate` calls no
model and keeps vectors. `critic`: `evaluate` is a part of a loss that is summed over too many batches. `test`: a function with another
name than an evaluation's calls a model of the library's modules without `no_grad`, and keeps its outputs. `policy`: rollouts without
gradients, and `evaluate` computes the loss of each training step, of which the last is too large. `features`: an evaluation keeps what each
layer gives of its one batch, layer by layer, until it returns. `again`: the same in each epoch, beside more and more data. `probe`:
`validate` trains a probe on what the model gives, and keeps that. `snapshots`: the weights of each epoch stay, and memory runs out in an
evaluation without gradients. `regulariser`: from a step on, `evaluate` is a part of the loss, with a larger input. `sharpness`: an
optimizer's own step, without gradients, calls a closure with gradients and a larger batch.
"""

import sys

import torch
from torch import nn

from common import OutOfMemoryError, say

WIDTH = 512
kept = []


def layers(count):
    return nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(count)]).cuda()


def batch(rows=2048):
    return torch.randn(rows, WIDTH, device="cuda")


def train(net, steps):
    for _ in range(steps):
        net(batch()).square().mean().backward()
        net.zero_grad()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, batch):
        return self.second(torch.relu(self.first(batch)))


def epochs():
    net = Net().cuda()

    def run_validation():
        with torch.no_grad():
            for _ in range(36):
                kept.append(net(batch()))

    while True:
        train(net, 12)
        run_validation()


def offload():
    net = layers(8)
    with torch.no_grad():
        while True:
            net.cuda()
            kept.append(net(batch()))
            net.cpu()


def larger():
    net = layers(4)
    train(net, 40)

    def evaluate():
        with torch.no_grad():
            kept.append(net(torch.empty(100000, WIDTH, device="cuda")))

    evaluate()


def archive():
    net = layers(2)

    def evaluate():
        kept.append(torch.randn(1024, WIDTH, device="cuda"))

    while True:
        for _ in range(20):
            evaluate()
        train(net, 1)


def critic():
    generator, judge = layers(3), layers(3)

    def evaluate(of):
        return judge(of).mean()

    for count in [10] * 6 + [1 << 10]:
        loss = evaluate(generator(batch(1024)))
        for _ in range(count):
            loss = loss - evaluate(batch(1024))
        loss.backward()
        generator.zero_grad()
        judge.zero_grad()


def test():
    net = layers(6)
    train(net, 20)

    def run_test():
        while True:
            kept.append(net(batch()))

    run_test()


def policy():
    net = layers(3)

    def act():
        with torch.no_grad():
            return net(batch(64))

    def evaluate(rows):
        return net(batch(rows)).square().mean()

    for step in range(16):
        for _ in range(4):
            act()
        evaluate(1024 if step < 15 else 60000).backward()
        net.zero_grad()


def features(rows=40000, epochs=1, data_mib=0):
    net = layers(12)

    def evaluate():
        with torch.no_grad():
            given = [batch(rows)]
            for layer in net:
                given.append(layer(given[-1]))
            return [one.mean().item() for one in given]

    for _ in range(epochs):
        train(net, 6)
        if data_mib:
            kept.append(torch.empty(data_mib << 20, dtype=torch.uint8, device="cuda"))
        evaluate()


def probe():
    net = layers(2)

    def validate():
        probe = nn.Linear(WIDTH, 10).cuda()
        for _ in range(10):
            features = net(batch(1024)).detach()
            probe(features).logsumexp(1).mean().backward()
            probe.zero_grad()
            kept.append(features)

    while True:
        train(net, 20)
        validate()


def snapshots():
    net = layers(10)

    @torch.no_grad()
    def evaluate():
        for _ in range(5):
            net(batch(8192))

    while True:
        for _ in range(10):
            net(batch(512)).square().mean().backward()
            net.zero_grad()
        kept.append({name: weight.clone() for name, weight in net.state_dict().items()})
        evaluate()


def regulariser():
    net = nn.Sequential(*[one for _ in range(6) for one in (nn.Linear(WIDTH, WIDTH), nn.Softplus())]).cuda()

    def evaluate(grid):
        return net(grid)

    for step in range(60):
        more = evaluate(batch(40000)).abs().mean() if step >= 50 else 0.0
        (net(batch()).square().mean() + more).backward()
        net.zero_grad()


class Sharpness(torch.optim.Optimizer):
    """Goes uphill first, as SAM does."""

    def __init__(self, parameters):
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure):
        for group in self.param_groups:
            for one in group["params"]:
                one.add_(one.grad, alpha=0.05)
        with torch.enable_grad():
            closure()


def sharpness():
    net = layers(10)
    optimizer = Sharpness(net.parameters())

    def closure():
        optimizer.zero_grad()
        net(batch(40000)).square().mean().backward()

    for _ in range(10):
        net(batch()).square().mean().backward()
        optimizer.step(closure)


try:
    {"probe": probe, "snapshots": snapshots, "regulariser": regulariser, "sharpness": sharpness, "features": features, "again": lambda: features(8000, 1 << 10, 40), "epochs": epochs, "offload": offload, "larger": larger, "archive": archive, "critic": critic, "test": test, "policy": policy}[sys.argv[1]]()
except OutOfMemoryError:
    say("kept", len(kept))
