"""A small transformer is trained until the card has no memory for its batch:

    torch_train.py caught      the error is caught, and training goes on with a smaller batch; status 0
    torch_train.py uncaught    the error ends the program; status 1

The batches are shares of the card, so that any card sees the same steps and only the last of them can fail. With
GPU_ACCOUNT=FILE PyTorch's own numbers at each moment are written there as JSON, for compare_torch.py. Each moment has a label in
the trace, so that both speak of the same instant. Works with every allocator that PYTORCH_ALLOC_CONF names.
"""

import ctypes
import json
import os
import sys

import torch
from torch import nn

DEVICE = torch.device("cuda", 0)
VOCABULARY, WIDTH, LENGTH, LAYERS = 1000, 256, 64, 8
# What a sample takes where a step needs most, by PyTorch's own count of steps of 24 to 80 samples (2.11 and 2.15 alike).
SAMPLE_BYTES = 11_300_000
# Shares of the card. The larger ones do not fit beside what is kept of the smaller ones, so that PyTorch has to give back and
# ask again; the last one does not fit at all.
FITS, RAISED, TOO_MUCH = [0.25] * 3, [0.4, 0.65], 1.5
STATISTICS = [
    f"{what}_bytes.all.{when}" for what in ("allocated", "reserved", "active", "requested") for when in ("current", "peak")
] + ["num_ooms", "num_alloc_retries", "num_device_alloc", "num_device_free"]


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        return self.head(self.layers(self.embedding(tokens)))


class Account:
    """PyTorch's own numbers."""

    def __init__(self):
        self.moments, self.failures = [], []
        # Null without the recorder.
        self.mark = getattr(ctypes.CDLL(None), "gpuoom_mark", lambda label: None)

    def note(self, name):
        """The numbers of this instant, and a label in the trace that lies between the same two blocks."""
        label = f"account {len(self.moments)}: {name}"
        self.mark(label.encode())
        statistics = torch.cuda.memory_stats(DEVICE)
        free, total = torch.cuda.mem_get_info(DEVICE)
        numbers = {key: statistics[key] for key in STATISTICS if key in statistics}
        self.moments.append({"label": label, "name": name, "statistics": numbers, "free": free, "total": total})

    def observe_failures(self):
        """Only here PyTorch's numbers are those of the failure: when Python catches it, what was half done is gone."""
        if torch.cuda.get_allocator_backend() == "native":
            torch._C._cuda_attach_out_of_memory_observer(lambda device, size, total, free: self.note(f"inside, {size}"))

    def failed(self, error, phase):
        self.note("caught")
        self.failures.append({"message": str(error), "phase": phase, "moment": len(self.moments) - 1})

    def write(self):
        self.note("end")
        path = os.environ.get("GPU_ACCOUNT")
        if not path:
            return
        backend = torch.cuda.get_allocator_backend()
        account = {"torch": torch.__version__, "backend": backend, "settings": os.environ.get("PYTORCH_ALLOC_CONF", "")}
        account |= {"device_total": torch.cuda.get_device_properties(DEVICE).total_memory}
        # The asynchronous back end has no segments of its own.
        segments = torch.cuda.memory_snapshot() if backend == "native" else None
        account |= {"moments": self.moments, "failures": self.failures, "segments": segments and slim(segments)}
        with open(path, "w") as file:
            json.dump(account, file)
            file.flush()
            os.fsync(file.fileno())


def slim(segments):
    """Of PyTorch's segments, what can be compared: each has its blocks in order, without gaps."""
    slim_ones = []
    for segment in segments:
        at, blocks = segment["address"], []
        for block in segment["blocks"]:
            blocks.append({"address": at, "bytes": block["size"], "state": block["state"]})
            at += block["size"]
        own = {"address": segment["address"], "bytes": segment["total_size"], "is_expandable": segment.get("is_expandable", False)}
        slim_ones.append({**own, "blocks": blocks})
    return slim_ones


class Training:
    def __init__(self, account):
        self.account, self.steps, self.phase = account, 0, "start"
        self.model = Network().to(DEVICE)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)

    def step(self, samples):
        self.phase = "forward"
        tokens = torch.randint(VOCABULARY, (samples, LENGTH), device=DEVICE)
        scores = self.model(tokens)
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), tokens.flatten())
        self.phase = "backward"
        loss.backward()
        self.phase = "optimizer"
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        self.steps += 1

    def whole_card(self):
        """How many samples would take all of it."""
        return torch.cuda.get_device_properties(DEVICE).total_memory / SAMPLE_BYTES

    def train(self, shares, samples):
        for share in shares:
            self.step(int(share * samples))
            self.account.note(f"trained with {share} of the card")


def say_expectations(account, mode):
    """What compare.py looks for in the report."""
    peak = max(moment["statistics"]["reserved_bytes.all.peak"] for moment in account.moments)
    if torch.cuda.get_allocator_backend() != "native":
        # What a pool reserves is no request of the program's.
        peak = max(moment["statistics"]["allocated_bytes.all.peak"] for moment in account.moments) * 9 // 10
    expected = {"peak_at_least_bytes": peak, "ooms": 1, "outcome": "propagated"}
    print("expect " + json.dumps(expected | {"exit_code": 1 if mode == "uncaught" else 0}), flush=True)


def run_out(training, samples, account, mode):
    """Answers whether the batch that is too large was refused."""
    try:
        training.train([TOO_MUCH], samples)
    except torch.OutOfMemoryError as error:
        # Nothing has been freed that the error's traceback still holds.
        account.failed(error, training.phase)
        if mode == "uncaught":
            account.write()
            say_expectations(account, mode)
            raise
        return True
    return False


def main(mode):
    account = Account()
    account.observe_failures()
    training = Training(account)
    account.note("model")
    samples = training.whole_card()
    training.train(FITS, samples)
    print(f"trained: {training.steps} steps", flush=True)
    training.train(RAISED, samples)
    print(f"raised: {training.steps} steps", flush=True)
    print("out of memory:", run_out(training, samples, account, mode), flush=True)
    training.optimizer.zero_grad(set_to_none=True)
    training.train(FITS[:2], samples)
    print(f"went on: {training.steps} steps", flush=True)
    account.write()
    say_expectations(account, mode)
    # Without the interpreter's end: the trace's last block is the account's last block.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
