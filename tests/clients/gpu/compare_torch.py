"""Holds what gpuoom tells of a run of torch_train.py against PyTorch's own account of it:

    compare_torch.py REPORT_JSON TRACE ACCOUNT_JSON [--analyzer FILE]

Prints a line for each promise, "held" or "DIFFERS: ...", and ends with 1 if any differs. The events come from `gpuoom-analyze events`, and
are followed here once more, without the analyzer's own account. Only what the caching allocator's library asked for counts as
PyTorch's: others in the process (cuBLAS) may take memory, too, and are told of.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

ALLOCATOR = "libc10_cuda"
MIB = 1 << 20
# Of the CUDA runtime and driver alike.
OUT_OF_MEMORY = 2
# CUDA does not say to what a pool rounds a block: no more than to a page.
PAGE = 2 * MIB
# What the driver may take for itself between the refusal and PyTorch's look at the free memory.
FREE_DIFFERS_BY = 4 * MIB


class Promises:
    def __init__(self):
        self.broken = 0

    def hold(self, what, is_held, told=""):
        self.broken += not is_held
        print(f"held: {what}" if is_held else f"DIFFERS: {what}", f"({told})" if told else "", flush=True)

    def equal(self, what, gpuoom, torch):
        if gpuoom == torch:
            return self.hold(what, True, torch if isinstance(torch, (int, str)) else "")
        self.hold(what, False, f"gpuoom {gpuoom}, PyTorch {torch}")

    def same_set(self, what, gpuoom, torch):
        """Of two sets of (address, bytes), what only one of them has."""
        only = [[(hex(at), size) for at, size in sorted(few)[:3]] for few in (gpuoom - torch, torch - gpuoom)]
        told = f"{len(gpuoom)} and {len(torch)}; only gpuoom {only[0]}, only PyTorch {only[1]}"
        self.hold(what, gpuoom == torch, told if gpuoom != torch else len(torch))


class Blocks(dict):
    """Bytes by address, with their sum and the most that it was."""

    total, peak = 0, 0

    def put(self, address, size):
        self.drop(address)
        self[address] = size
        self.total += size
        self.peak = max(self.peak, self.total)

    def drop(self, address):
        self.total -= self.pop(address, 0)


class Replay:
    """The first device's memory, followed event by event, with what it was at each of the account's labels."""

    def __init__(self):
        self.blocks = {name: Blocks() for name in ("tensors", "reserved", "pool", "others")}
        self.refused, self.moments = 0, {}

    def follow(self, events):
        for event in events:
            if event["event"] == "mark" and event.get("text", "").startswith("account "):
                self.moments[event["text"]] = {name: dict(blocks) for name, blocks in self.blocks.items()}
            # A call inside a call is the same memory once more.
            elif event.get("parent") is None and event.get("device") == 0:
                self.change(event)

    def change(self, event):
        what, size, kind = event["event"], event.get("requested_bytes", 0), event.get("kind")
        if event.get("layer") == "kernel":
            # What the driver takes for itself, a context's memory above all: no library's call.
            return
        if status := event.get("status", {}).get("code"):
            # PyTorch tries what the system lets it have, and takes another answer than this for no lack of memory.
            is_refusal = what == "alloc" and event["layer"] != "framework" and status == OUT_OF_MEMORY
            self.refused += is_refusal and ALLOCATOR in event.get("caller", "")
        elif what in ("map", "unmap"):
            self.map(what, int(event["address"], 16), size)
        elif kind in ("tensor", "device", "pool") and what == "alloc":
            self.place(kind, event.get("caller", "")).put(int(event["address"], 16), size)
        elif kind in ("tensor", "device", "pool") and what == "free":
            # Whoever frees it: the address says whose it is.
            for name in ("tensors",) if kind == "tensor" else ("reserved", "pool", "others"):
                self.blocks[name].drop(int(event["address"], 16))

    def place(self, kind, caller):
        if kind == "tensor":
            return self.blocks["tensors"]
        return self.blocks["others" if ALLOCATOR not in caller else "pool" if kind == "pool" else "reserved"]

    def map(self, what, address, size):
        pieces = self.blocks["reserved"]
        if what == "map":
            pieces.put(address, size)
        elif pieces.get(address) == size:
            pieces.drop(address)
        else:
            # A range may be unmapped in one call that was mapped in several.
            for piece in [piece for piece in pieces if address <= piece < address + size]:
                pieces.drop(piece)


def ranges(blocks):
    """Blocks that touch each other, as one: (address, bytes)."""
    joined = []
    for address, size in sorted(blocks):
        if joined and sum(joined[-1]) == address:
            joined[-1] = (joined[-1][0], joined[-1][1] + size)
        else:
            joined.append((address, size))
    return set(joined)


def statistic(account, name, moment=-1):
    return account["moments"][moment]["statistics"].get(name, 0)


def most(account, name):
    return max(statistic(account, name, index) for index in range(len(account["moments"])))


def compare_run(promises, report, account, replay):
    promises.equal("no events were lost", report["trace"]["events_lost"], 0)
    total = report["devices"][0]["total_bytes"]
    promises.hold("the card's memory", total in (account["device_total"], account["moments"][0]["total"]), total)
    promises.hold("each label is in the trace", len(replay.moments) == len(account["moments"]), len(replay.moments))
    # The account ends where the program says how it ended.
    is_uncaught = account["moments"][-2]["name"] == "caught"
    promises.equal("the program's status", report["process"]["exit_code"], int(is_uncaught))
    if replay.blocks["others"].peak:
        print(f"note: other libraries of the process held up to {replay.blocks['others'].peak} bytes of the device")


def compare_moments(promises, report, account, replay):
    """What lies in tensors, and what is reserved, at each label: by the events, and by the report."""
    told = {one["at"].removeprefix("mark:"): one for one in report["devices"][0]["tensors"]["moments"]}
    for what, name in (("allocated", "tensors"), ("reserved", "reserved")):
        own = {moment["label"]: moment["statistics"][f"{what}_bytes.all.current"] for moment in account["moments"]}
        sources = {"events": {label: sum(moment[name].values()) for label, moment in replay.moments.items()}}
        sources["report"] = {label: told[label][f"{what}_bytes"] for label in own if label in told}
        for source, numbers in sources.items():
            differing = [(label, numbers[label], own[label]) for label in own if numbers.get(label, own[label]) != own[label]]
            told_of = f"{differing[0]}" if differing else f"{len(numbers)} moments"
            promises.hold(f"{what} at each moment, by the {source}", not differing and bool(numbers), told_of)


def compare_peaks(promises, report, account, replay):
    device = report["devices"][0]
    reserved = most(account, "reserved_bytes.all.peak")
    promises.equal("the peak of what is allocated", device["tensors"]["peak_allocated_bytes"], most(account, "allocated_bytes.all.peak"))
    promises.equal("the peak of what is reserved", replay.blocks["reserved"].peak, reserved)
    peak = device["peak"]["requested_bytes"]
    # The device's peak has other libraries' memory, too, and pieces that PyTorch got and gave back because others were refused.
    is_exact = not replay.blocks["others"].peak and not any(segment["is_expandable"] for segment in account["segments"])
    promises.hold("the device's peak", peak == reserved if is_exact else peak >= reserved, f"{peak}, reserved {reserved}")
    promises.equal("records whose totals differ", device["tensors"]["mismatches"], 0)


def compare_failures(promises, report, account, replay):
    errors = [oom for oom in report["ooms"] if oom["layer"] == "framework"]
    ooms, retries = most(account, "num_ooms"), most(account, "num_alloc_retries")
    promises.equal("out-of-memory errors", len(errors), ooms)
    # Each retry and each error comes after one refusal.
    promises.equal("refused calls, by the events", replay.refused, ooms + retries)
    refused = sum(len(oom["attempts"]) or oom["layer"] != "framework" for oom in report["ooms"])
    promises.equal("refused calls, by the report", refused, ooms + retries)
    inside = [moment for moment in account["moments"] if moment["name"].startswith("inside")]
    for oom, moment, failure in zip(errors, inside, account["failures"]):
        compare_told(promises, oom, failure)
        others = sum(replay.moments.get(moment["label"], {}).get("others", {}).values())
        compare_failure(promises, report, account, oom, moment, others)


def compare_failure(promises, report, account, oom, moment, others):
    statistics = moment["statistics"]
    told = next((one for one in report["devices"][0]["tensors"]["moments"] if one["at"] == f"oom:{oom['number']}"), {})
    for what in ("allocated", "reserved"):
        promises.equal(f"{what} at the failure", told.get(f"{what}_bytes"), statistics[f"{what}_bytes.all.current"])
    held, reserved = oom["held_bytes"], statistics["reserved_bytes.all.current"]
    promises.hold("what the process held at the failure", held >= reserved, f"{held}, reserved {reserved}")
    compare_free(promises, account, oom, moment, held - reserved - others)


def compare_free(promises, account, oom, moment, given_back):
    """The report has what was free when the call was refused; of an expandable segment, PyTorch then gives back what it had got."""
    free, later = oom["free_reported_bytes"], moment["free"]
    expected = later - given_back if any(segment["is_expandable"] for segment in account["segments"] or []) else later
    told = f"gpuoom {free}, PyTorch {later}, of that given back in between {later - expected}"
    promises.hold("free at the failure", free is not None and abs(free - expected) <= FREE_DIFFERS_BY, told)


def compare_told(promises, oom, failure):
    message, own = oom["message"] or "", failure["message"]
    # PyTorch may add a native backtrace for Python that the exception's text does not begin with.
    is_same = bool(message) and (own.startswith(message.rstrip()) or message.startswith(own))
    promises.hold("the error's text", is_same, message.splitlines()[0][:60] if is_same else f"gpuoom {message!r}, PyTorch {own!r}")
    promises.equal("the phase of the failure", oom["phase"], failure["phase"])
    promises.equal("the outcome", oom["outcome"], "propagated")


def compare_end(promises, account, replay):
    """One by one."""
    end = replay.moments[account["moments"][-1]["label"]]
    own = {(segment["address"], segment["bytes"]) for segment in account["segments"]}
    if any(segment["is_expandable"] for segment in account["segments"]):
        # PyTorch tells ranges, the trace pieces: the same where those that touch each other are joined.
        promises.same_set("ranges of expandable segments at the end", ranges(end["reserved"].items()), ranges(own))
    else:
        promises.same_set("segments at the end", set(end["reserved"].items()), own)
    blocks = [block for segment in account["segments"] for block in segment["blocks"]]
    own = {(block["address"], block["bytes"]) for block in blocks if block["state"] == "active_allocated"}
    promises.same_set("blocks at the end", set(end["tensors"].items()), own)


def compare_asynchronous(promises, report, account, replay):
    """CUDA's pool has no blocks that anybody could list: its own sums, within what it may round."""
    for moment in account["moments"]:
        pool = replay.moments.get(moment["label"], {}).get("pool", {})
        asked, used = sum(pool.values()), moment["statistics"].get("allocated_bytes.all.current", 0)
        told = f"{len(pool)} blocks of {asked} bytes, the pool says {used}"
        promises.hold(f"allocated at {moment['label']!r}", asked <= used <= asked + PAGE * len(pool), told)
    peak, used = report["devices"][0]["peak"]["requested_bytes"], most(account, "allocated_bytes.all.peak")
    asked = replay.blocks["pool"].peak
    print(f"note: peak {peak} by the report, {asked} in the pool by the events, {used} by the pool with its rounding")
    promises.hold("the peak in the pool", 0 < asked <= min(peak, used), asked)
    # One refusal for each error in PyTorch 2.11; 2.15 gives back what the pool keeps and asks once more.
    tries = len(account["failures"]) * (2 if tuple(map(int, account["torch"].split(".")[:2])) >= (2, 15) else 1)
    promises.equal("refused calls, by the report", len(report["ooms"]), tries)
    promises.equal("refused calls, by the events", replay.refused, tries)
    last_tries = [oom for oom in report["ooms"] if oom["message"]]
    promises.equal("errors with a text", len(last_tries), len(account["failures"]))
    for oom, failure in zip(last_tries, account["failures"]):
        compare_told(promises, oom, failure)
        compare_free(promises, account, oom, account["moments"][failure["moment"]], 0)


def compare_plain(promises, account, plain):
    """Without the recorder, PyTorch counts the same, and as much is free. A stream-ordered pool gives back when the card has time."""
    for name in ("statistics", "free"):
        pairs = zip(account["moments"], plain["moments"])
        differing = [(ours["label"], ours[name], theirs[name]) for ours, theirs in pairs if ours[name] != theirs[name]]
        what = "PyTorch's statistics" if name == "statistics" else "the card's free memory"
        promises.hold(f"{what}, with and without the recorder", not differing, differing[0] if differing else f"{len(plain['moments'])} moments")


def main():
    root = pathlib.Path(__file__).resolve().parents[3]
    parser = argparse.ArgumentParser()
    parser.add_argument("report")
    parser.add_argument("trace")
    parser.add_argument("account")
    parser.add_argument("--analyzer", default=os.environ.get("ANALYZER", root / "target/release/gpuoom-analyze"))
    parser.add_argument("--plain", help="the account of the same run without the recorder")
    given = parser.parse_args()
    report, account = (json.loads(pathlib.Path(path).read_text()) for path in (given.report, given.account))
    replay, promises = Replay(), Promises()
    command = [given.analyzer, "events", "--format", "json", given.trace]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as events:
        replay.follow(map(json.loads, events.stdout))
    promises.equal("the events could be read", events.returncode, 0)
    compare_run(promises, report, account, replay)
    if account["backend"] == "native":
        compare_moments(promises, report, account, replay)
        compare_peaks(promises, report, account, replay)
        compare_failures(promises, report, account, replay)
        compare_end(promises, account, replay)
        if given.plain:
            compare_plain(promises, account, json.loads(pathlib.Path(given.plain).read_text()))
    else:
        compare_asynchronous(promises, report, account, replay)
    print(f"coverage: {report['coverage'].get('share')}; {promises.broken} promises differ")
    sys.exit(1 if promises.broken else 0)


if __name__ == "__main__":
    main()
