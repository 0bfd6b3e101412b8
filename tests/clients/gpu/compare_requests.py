#!/usr/bin/env python3
"""Compares what a program asked of NVIDIA's drivers, as watch_requests wrote it down from outside, with the recorder's traces.

    compare_requests.py [--analyzer PATH] [--driver 580.159.03] [--list N] LOG [TRACE...]

A TRACE is a trace, or what `gpuoom-analyze events --format json` made of it. Ends with 0 if every request about memory is in
the traces as the driver answered it, 1 if not, 2 if that can't be told. Without a trace it only says what was seen.
"""

import argparse
import collections
import difflib
import json
import re
import subprocess
import sys
from pathlib import Path

from watched_requests import CLASSES, CONTROLS, RECORDED_CLASSES, RECORDED_RM, RECORDED_UVM, ROLES, UVM_SINCE, Request, Step, key

ANALYZER = Path(__file__).resolve().parents[3] / "target/release/gpuoom-analyze"
NOT_COMPARED = {"free": ("size",), "import": ("size",)}


class Recorded:
    """One event of a trace about a request to a driver of NVIDIA."""

    def __init__(self, line, trace):
        self.trace, self.seq, self.tid = trace, line["seq"], line["thread"]
        self.event, self.kind, self.name = line["event"], line.get("kind"), line["api"]
        self.address = int(line.get("address") or "0x0", 16) or None
        self.size, self.numbers = line.get("requested_bytes", 0), line.get("numbers", [])
        self.status = (line.get("status") or {}).get("code", 0) or 0

    def text(self):
        return (f"{self.trace} seq {self.seq}, thread {self.tid}, {self.name}, {self.event} of {self.kind}, address "
                f"{self.address or 0:#x}, size {self.size}, status {self.status:#x}, numbers {[hex(n) for n in self.numbers]}")


def read_log(path, later):
    """The requests, in their order, the mappings, and how many lines are broken."""
    requests, mappings, broken = [], [], 0
    for text in Path(path).read_text().splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            broken += 1  # the last one, if the watcher was ended early
            continue
        (requests if line["what"] == "ioctl" else mappings).append(Request(line, later) if line["what"] == "ioctl" else line)
    return sorted(requests, key=lambda request: request.seq), mappings, broken


def read_trace(path, analyzer):
    """Events about these drivers. A free that failed is there twice: as it was asked, and as it came out."""
    with open(path, "rb") as file:
        is_json = file.read(1) == b"{"
    command = [analyzer, "events", "--format", "json", path]
    text = Path(path).read_text() if is_json else subprocess.run(command, capture_output=True, text=True).stdout
    events = []
    for line in map(json.loads, text.splitlines()):
        if line.get("layer") != "kernel" or not re.match("NV_ESC_|UVM_", line.get("api", "")):
            continue
        event = Recorded(line, Path(path).name)
        if "correction" in line.get("marks", []):
            asked = [one for one in events if (one.tid, one.name, one.address) == (event.tid, event.name, event.address)]
            if asked:
                asked[-1].status = event.status
                continue
        events.append(event)
    return events


def heading(text):
    print(f"\n{text}\n{'-' * len(text)}")


def known(request):
    if request.is_uvm:
        return "yes" if request.number in RECORDED_UVM else "no"
    return "yes" if request.is_rm and request.number in RECORDED_RM else "no"


def failures(requests):
    statuses = collections.Counter(request.status for request in requests if request.status != 0)
    texts = [f"{'not known' if status is None else hex(status)}: {count}" for status, count in statuses.most_common(6)]
    return ", ".join(texts)


def show_requests(requests):
    heading("Requests: node, number, name, sizes, count, in the recorder's tables, statuses other than 0")
    groups = collections.defaultdict(list)
    for request in requests:
        groups[re.sub(r"nvidia\d+$", "nvidia#", request.node), request.number, request.name].append(request)
    for (node, number, name), group in sorted(groups.items(), key=lambda item: item[0]):
        sizes = ",".join(str(size) for size in sorted({request.payload.size for request in group}))
        carried = sum(request.carried for request in group)
        print(f"{node:20} {number:#6x} {name:36} {sizes:12} {len(group):6}  {known(group[0]):4}{failures(group)}"
              + (f"  ({carried} of them carried)" if carried else ""))


def show_classes(requests):
    heading("Classes of NV_ESC_RM_ALLOC(_MEMORY): number, name, sizes of parameters, count, what they carry, recorded, statuses")
    groups = collections.defaultdict(list)
    for request in requests:
        if request.class_number is not None:
            groups[request.class_number].append(request)
    for number, group in sorted(groups.items()):
        sizes = ",".join(str(size) for size in sorted({request.nested.size for request in group}))
        role = ROLES.get(number, ("nothing of its own",))[0] if number in CLASSES else "not known"
        print(f"{number:#6x} {CLASSES.get(number, 'not known'):34} {sizes:10} {len(group):6}  {role:18} "
              f"{'yes' if number in RECORDED_CLASSES else 'no':4} {failures(group)}")
    print("How much the driver takes for channels, contexts and page tables of its own: not known, no request says it.")


def show_controls(requests):
    heading("Controls (NV_ESC_RM_CONTROL): command, name, count")
    counts = collections.Counter(request.payload.number(8) for request in requests if request.is_rm and request.number == 0x2A)
    named = {command: count for command, count in counts.items() if command in CONTROLS}
    for command, count in sorted(named.items()):
        print(f"{command:#10x} {CONTROLS[command]:36} {count:6}")
    others = sorted((command, count) for command, count in counts.items() if command is not None and command not in CONTROLS)
    print("others, names not looked up: " + (", ".join(f"{command:#x} x{count}" for command, count in others) or "none"))


class Ledger:
    """What is there according to the log: a tree of objects, and memory with as many handles as were made of it."""

    def __init__(self):
        self.parents, self.memory, self.handles = {}, {}, collections.Counter()
        self.used, self.most, self.classes = collections.Counter(), collections.Counter(), {}

    def follow(self, step):
        request, payload = step.request, step.request.payload
        if not request.is_rm or request.status != 0:
            return
        if step.role == "gives":
            self.drop(step.address)
        elif request.number in (0x27, 0x2B, 0x34) or step.role in ("memory", "pages"):
            root, handle = payload.new(0), payload.new(8)
            is_client = request.class_number in (0, 1, 0x41) and request.number == 0x2B
            address = key(handle, handle) if is_client else step.address or key(root, handle)
            self.parents[address] = None if is_client else key(root, payload.number(4))
            self.classes[address] = request.class_number or self.classes.get(step.numbers[0] if step.numbers else None)
            if step.role in ("memory", "pages"):
                self.hold(address, (step.kind or "not known", step.size or 0, request.seq))
            elif step.role == "duplicate" and step.numbers[0] in self.memory:
                self.hold(address, self.memory[step.numbers[0]])

    def hold(self, address, memory):
        self.memory[address] = memory
        self.handles[memory] += 1
        if self.handles[memory] == 1:
            self.used[memory[0]] += memory[1]
            self.most[memory[0]] = max(self.most[memory[0]], self.used[memory[0]])

    def drop(self, address):
        is_client = address >> 32 == address & 0xFFFFFFFF
        below = [one for one, above in self.parents.items() if above == address or is_client and one >> 32 == address >> 32]
        self.parents.pop(address, None)
        memory = self.memory.pop(address, None)
        if memory:
            self.handles[memory] -= 1
            self.used[memory[0]] -= memory[1] if self.handles[memory] == 0 else 0
        for one in below:
            if one in self.parents:
                self.drop(one)


def show_steps(steps, most):
    heading("Requests about memory, by the headers")
    for step in steps[:most]:
        print(step.text())
    if len(steps) > most:
        print(f"... and {len(steps) - most} more (--list {len(steps)})")


def show_ledgers(steps):
    heading("Held by each process, by the log: objects of the resource manager only")
    ledgers = collections.defaultdict(Ledger)
    sources = collections.Counter()
    for step in steps:
        ledger = ledgers[step.request.pid]
        if step.role == "duplicate" and step.request.status == 0:
            number = ledger.classes.get(step.numbers[0])
            sources["not known" if number is None else CLASSES.get(number, hex(number))] += 1
        ledger.follow(step)
    for pid, ledger in sorted(ledgers.items()):
        for kind in sorted(ledger.most):
            print(f"process {pid}: {kind}: at most {ledger.most[kind]} bytes, at the end {ledger.used[kind]}")
    if sources:
        print("duplicates, by the class of what they were made of: " + ", ".join(f"{name} x{n}" for name, n in sources.items()))


def differences(step, event):
    """What a request and its event disagree about."""
    found = []
    for name in ("event", "kind", "size", "numbers", "status"):
        here = step.request.status if name == "status" else getattr(step, name)
        there = getattr(event, name)
        is_open = here is None or name in NOT_COMPARED.get(step.event, ()) or (name == "kind" and step.event == "free")
        if not is_open and here != there:
            found.append(f"{name} {here!r} in the log, {there!r} in the trace")
    return found


def align(steps, events):
    """Pairs of a request and its event, in the order of one thread; None where one has no other."""
    ours = [(step.request.name.replace("_ALLOC_MEMORY", "_ALLOC"), step.address or None) for step in steps]
    theirs = [(event.name, event.address) for event in events]
    pairs = []
    for tag, i, i_end, j, j_end in difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        if tag == "equal" or i_end - i == j_end - j and all(a[0] == b[0] for a, b in zip(ours[i:i_end], theirs[j:j_end])):
            pairs += zip(steps[i:i_end], events[j:j_end])
        else:
            pairs += [(step, None) for step in steps[i:i_end]] + [(None, event) for event in events[j:j_end]]
    return pairs


def compare(steps, events, most):
    """Prints what does not agree, and answers how many that are."""
    first = {}
    for step in steps:
        if step.role != "gives" and step.is_recorded:
            first.setdefault(step.request.pid, step.request.seq)
    usable = [step for step in steps if not (step.request.interrupted or step.is_odd)]
    groups = {"missing": [], "recorder": [], "before the recording": [], "left out": [], "only in the trace": [], "different": []}
    agree = 0
    for tid in sorted({step.request.tid for step in usable} | {event.tid for event in events}):
        of_thread = [step for step in usable if step.request.tid == tid]
        for step in [step for step in of_thread if not step.is_recorded]:
            groups["missing" if step.role in ("memory", "pages") else "left out"].append(step.text())
        pairs = align([step for step in of_thread if step.is_recorded], [event for event in events if event.tid == tid])
        for step, event in pairs:
            if event is None:
                is_early = step.role == "gives" and step.request.seq < first.get(step.request.pid, float("inf"))
                group = "recorder" if step.request.is_recorders else "before the recording" if is_early else "missing"
                groups[group].append(step.text())
            elif step is None:
                groups["only in the trace"].append(event.text())
            else:
                found = differences(step, event)
                if (step.address or None) != event.address and step.request.status is not None:
                    found.append(f"address {step.address or 0:#x} in the log, {event.address or 0:#x} in the trace")
                agree += not found
                groups["different"] += [f"{step.text()}\n    {event.text()}\n    {'; '.join(found)}"] if found else []
    return show_groups(groups, agree, len(steps) - len(usable), most)


def show_groups(groups, agree, unusable, most):
    heading("Comparison with the traces")
    print(f"{agree} agree. Not compared: {unusable} that were interrupted, or that no driver could read.")
    words = {
        "missing": "in the log, missing in the trace", "only in the trace": "in the trace, missing in the log",
        "different": "in both, but different", "before the recording": "given back before the recording began (fine)",
        "recorder": "made by the recorder's own thread, which tried for the largest block (fine)",
        "left out": "left out by the recorder's tables, addresses or memory that is another object's (to be judged)",
    }
    for name, texts in groups.items():
        print(f"\n{len(texts)} {words[name]}")
        for text in texts[:most]:
            print("  " + text.replace("\n", "\n  "))
        if len(texts) > most:
            print(f"  ... and {len(texts) - most} more")
    wrong = sum(len(groups[name]) for name in ("missing", "only in the trace", "different"))
    verdict = "DO NOT AGREE" if wrong else "AGREE" if agree else "NOTHING COMPARED"
    print(f"\n{verdict}: {agree} agree, {wrong} do not")
    return 1 if wrong else 0 if agree else 2


def driver_of(text):
    for path in ([] if text else ["/sys/module/nvidia_uvm/version", "/sys/module/nvidia/version"]):
        if Path(path).exists():
            text = Path(path).read_text()
    return tuple(int(part) for part in re.findall(r"\d+", text or "580.159.03")[:3])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log")
    parser.add_argument("traces", nargs="*")
    parser.add_argument("--analyzer", default=str(ANALYZER))
    parser.add_argument("--driver", help="version of the driver (of this machine, or 580.159.03)")
    parser.add_argument("--list", type=int, default=200, help="how many requests each list shows (200)")
    options = parser.parse_args()
    driver = driver_of(options.driver)
    if driver < (550, 40, 53):
        sys.exit(f"layouts of driver {driver}: not known here")
    requests, mappings, broken = read_log(options.log, driver >= UVM_SINCE)
    print(f"driver {'.'.join(map(str, driver))}; {len(requests)} requests, {len(mappings)} mappings of such files, of "
          f"{sum(line['length'] for line in mappings)} bytes; {len({request.pid for request in requests})} processes; "
          f"{broken} broken lines; {sum(request.result is None for request in requests)} without an end")
    every = [Step(request) for request in requests]
    steps = [step for step in every if step.role]
    show_requests(requests)
    show_classes(requests)
    show_controls(requests)
    show_steps(steps, options.list)
    show_ledgers(every)
    odd = [step.text() for step in steps if step.odd_place and step.request.status == 0]
    if odd:
        print("\nPlaces that the headers do not allow for these classes:\n  " + "\n  ".join(odd[:options.list]))
    if not options.traces:
        return 2
    return compare(steps, [event for path in options.traces for event in read_trace(path, options.analyzer)], options.list)


if __name__ == "__main__":
    sys.exit(main())
