# Holds a recorded tour (driver_tour.c, runtime_tour.c, full.c) against the plain one and against its own account: each call that
# takes or gives memory, its size, status and address, and what the driver's count of free memory did.
#     compare_tour.py ANALYZER OUT_DIR NAME
import collections
import json
import pathlib
import subprocess
import sys

# The runtime that is linked in has no symbols: its calls are in the trace by what they ask of the driver.
IS_LINKED_IN = "static"
# Calls of the tours that the recorder notes only after a failure, or under another name.
NOT_NOTED = {"cuLaunchKernel", "cuGraphLaunch", "cudaGraphLaunch", "cuMemSetAccess"}
# A range of addresses that is refused is no memory that was refused.
NO_MEMORY = {"cuMemAddressReserve"}
GRANULE = 2 << 20


def lines(path):
    for line in path.read_text(errors="replace").splitlines():
        if line.startswith("{"):
            yield json.loads(line)


def without_addresses(line):
    kept = {key: value for key, value in line.items() if key != "address"}
    # The process's own share is read by process number, and the card's total has it in it.
    return {"nvml": line["nvml"], "used_bytes": line["used_bytes"]} if "nvml" in line else kept


# A free is written before the call; if it fails, a second record says so.
def corrected(events):
    kept = []
    for event in events:
        if "correction" in event.get("marks", []):
            kept[-1]["status"] = event["status"]
        else:
            kept.append(event)
    return kept


class Tour:
    def __init__(self, analyzer, out_dir, name):
        self.name = name
        self.plain = list(lines(out_dir / f"{name}-plain.stdout"))
        self.account = list(lines(out_dir / f"{name}.stdout"))
        trace = out_dir / f"{name}.trace.bin"
        ask = lambda *arguments: subprocess.run([analyzer, *arguments, trace], capture_output=True, text=True).stdout
        self.events = corrected(json.loads(line) for line in ask("events", "--format", "json").splitlines())
        self.report = json.loads(ask("report", "--format", "json"))
        self.statuses = [(out_dir / f"{name}{kind}.status").read_text().strip() for kind in ("-plain", "")]
        self.complaints = collections.Counter()
        self.first = {}

    def promise(self, what, holds, otherwise=""):
        self.complaints[what] += 0
        if not holds:
            self.complaints[what] += 1
            self.first.setdefault(what, otherwise)

    def figure(self, name):
        return next((line["value"] for line in self.account if line.get("figure") == name), None)

    def unaffected(self):
        self.promise("the program has an account", any("call" in line for line in self.account), "no call is in it")
        self.promise("the exit status is the same", self.statuses[0] == self.statuses[1], str(self.statuses))
        same_length = len(self.plain) == len(self.account)
        self.promise("the output has as many lines", same_length, f"{len(self.plain)} and {len(self.account)}")
        was_refused = False
        for before, after in zip(map(without_addresses, self.plain), map(without_addresses, self.account)):
            was_refused = was_refused or after.get("status") == 2
            if not was_refused:
                self.promise("each status, size and count of free memory is the same", before == after, f"{before} and {after}")
            # Once something was refused, the recorder has asked for the largest block: the driver gives up for that what it keeps
            # of managed memory.
            less = after.get("free_bytes", 0) >= before.get("free_bytes", 0)
            same = before.get("status") == after.get("status") and less
            self.promise("each status is the same, and no less memory is free", same, f"{before} and {after}")

    # In order: the tour makes its calls on one thread.
    def calls_noted(self):
        if IS_LINKED_IN in self.name:
            return self.blocks_noted()
        events = iter([event for event in self.events if event.get("api") and event["parent"] is None])
        for call in self.account:
            if "call" not in call or call["call"] in NOT_NOTED:
                continue
            # `full` asks for blocks between its calls, to find the largest.
            is_it = lambda event: event["api"] == call["call"] and (
                "requested_bytes" not in event or not call["size_bytes"] or event["requested_bytes"] == call["size_bytes"]
            )
            event = next((event for event in events if is_it(event)), None)
            self.promise("each call is in the trace, in order", event is not None, str(call))
            if event is None:
                return
            self.one_call(call, event)

    def blocks_noted(self):
        known = [event for event in self.events if event["event"] in ("alloc", "pin", "reserve") and event["parent"] is None]
        for call in self.account:
            if call.get("call") in NOT_NOTED or "address" not in call or not call["size_bytes"] or call["address"] == "(nil)":
                continue
            address = int(call["address"], 16)
            event = next((event for event in known if int(event.get("address", "0x0"), 16) == address), None)
            held = event is not None and event["requested_bytes"] == call["size_bytes"]
            # The address of an array is the runtime's own.
            if call["call"] != "cudaMallocArray":
                self.promise("each block of the runtime is in the trace as the driver's", held, f"{call} and {event}")

    def one_call(self, call, event):
        status = event.get("status", {}).get("code", 0)
        both = f"{call} and {event}"
        self.promise("each call has the status that the program got", status == call["status"], both)
        if event["event"] in ("alloc", "reserve", "pin") and call["size_bytes"]:
            self.promise("each request has the size that was asked for", event.get("requested_bytes") == call["size_bytes"], both)
        if call["status"] == 0 and call["address"] != "(nil)" and event["event"] in ("alloc", "reserve", "free", "pin"):
            self.promise("each block has its address", int(event.get("address", "0x0"), 16) == int(call["address"], 16), both)

    def refusals(self):
        names = [call.get("call", call.get("refused")) for call in self.account if call.get("status") == 2]
        refused, told = len([name for name in names if name not in NO_MEMORY]), len(self.report["ooms"])
        if self.name.startswith("full"):
            self.promise("at least the refusals that the program counts are told", told >= refused, f"{told} and {refused}")
        else:
            self.promise("each refusal is told", told == refused, f"{told} told, {refused} seen")
        for line in self.account:
            if "refused" in line:
                holds = line["peeked"] == line["got"] == line["status"] and line["then"] == 0
                self.promise("the last error is the program's to read", holds, str(line))

    def nothing_lost(self):
        trace = self.report["trace"]
        self.promise("no event is lost", trace["events_lost"] == trace["torn_events"] == 0, str(trace))
        end = self.report["devices"][0]["end"]
        if not self.name.startswith("full"):
            self.promise("nothing is left at the end", end["requested_bytes"] == 0, str(end))

    # The card and the process by NVML, where the program asked it, and the largest block as the program found it itself.
    def readings(self):
        nvml = [line for line in self.account if "nvml" in line]
        if nvml:
            total, told = nvml[0]["total_bytes"] - nvml[0]["reserved_bytes"], self.report["devices"][0]["total_bytes"]
            self.promise("the card's total is NVML's without the reserve", total == told, f"{total} and {told}")
        # At the end nobody reads: the last numbers are of a moment before.
        read = [ledger for ledger in self.report["ledger"] if ledger["moment"].startswith("oom:") and any(row["process_bytes"] for row in ledger["readings"])]
        for ledger in read:
            by_nvml = next(row["process_bytes"] for row in ledger["readings"] if row["process_bytes"])
            of_calls = sum(row["bytes"] for row in ledger["rows"] if row["source"] == "calls")
            same = by_nvml == of_calls
            self.promise("what the process holds by its calls and requests is what NVML counts", same, f"{of_calls} and {by_nvml}")
        largest, first = self.figure("largest block"), next(iter(self.report["ooms"]), {})
        if largest is not None:
            told = first.get("largest_allocatable_bytes")
            self.promise("the largest block is as the program finds it", told == largest, f"{told} and {largest}")

    def measured(self):
        rounding = collections.Counter()
        for call in self.account:
            if call.get("call") in ("cuMemAlloc_v2", "cudaMalloc", "cuMemCreate") and call["status"] == 0:
                rounded = -(-call["size_bytes"] // GRANULE) * GRANULE
                rounding["as granules of 2 MiB" if call["taken_bytes"] == rounded else "otherwise"] += 1
        print(f"  {self.name}: blocks that take {dict(rounding)}; granularity told {self.report['devices'][0]['granularity_observed_bytes']}")
        for line in self.account:
            if "figure" in line or "nvml" in line or "pool" in line or "graphs" in line:
                print(f"    {json.dumps(line)}")


def main():
    tour = Tour(sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3])
    for check in (tour.unaffected, tour.calls_noted, tour.refusals, tour.nothing_lost, tour.readings, tour.measured):
        check()
    for what, wrong in tour.complaints.items():
        print(f"{'held' if not wrong else 'DIFFERS'}: {tour.name}: {what}" + (f" ({wrong} times, first: {tour.first[what]})" if wrong else ""))
    sys.exit(1 if any(tour.complaints.values()) else 0)


main()
