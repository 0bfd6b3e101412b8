# Holds a recorded run against the plain one, and its report against what the client itself read from the driver.
#     compare.py OUT_DIR NAME PLAIN_USER_SECONDS RECORDED_USER_SECONDS
# A client prints lines; one that begins with "expect " is JSON: what the trace must say.
import json
import pathlib
import sys

out_dir, name, plain, recorded = pathlib.Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), float(sys.argv[4])


def read(path):
    return (out_dir / path).read_text(errors="replace")


complaints = []
before, after = read(f"{name}-plain.stdout"), read(f"{name}.stdout")
# Free memory differs from run to run; what is expected of the trace is compared with this run's own numbers.
if [line for line in before.splitlines() if not line.startswith("expect ")] != [
    line for line in after.splitlines() if not line.startswith("expect ")
]:
    complaints.append("the recorded run printed something else")
if read(f"{name}-plain.status") != read(f"{name}.status"):
    complaints.append("the recorded run ended with another status")

report = json.loads(read(f"{name}.json"))
device = report["devices"][0] if report["devices"] else {}
expected = [json.loads(line[len("expect ") :]) for line in after.splitlines() if line.startswith("expect ")]
for wanted in expected:
    peak = device.get("peak", {}).get("requested_bytes", 0)
    if "peak_at_least_bytes" in wanted and peak < wanted["peak_at_least_bytes"]:
        complaints.append(f"peak {peak} is below {wanted['peak_at_least_bytes']}")
    if "peak_at_most_bytes" in wanted and peak > wanted["peak_at_most_bytes"]:
        complaints.append(f"peak {peak} is above {wanted['peak_at_most_bytes']}")
    if "ooms" in wanted and len(report["ooms"]) < wanted["ooms"]:
        complaints.append(f"{len(report['ooms'])} out-of-memory returns, {wanted['ooms']} expected")
    if "outcome" in wanted and wanted["outcome"] not in [oom["outcome"] for oom in report["ooms"]]:
        complaints.append(f"no failure is {wanted['outcome']}")
    if "live_at_end" in wanted and device.get("end", {}).get("requested_bytes") != wanted["live_at_end"]:
        complaints.append(f"{device.get('end')} is left at the end, not {wanted['live_at_end']} bytes")
if report["trace"]["events_lost"]:
    complaints.append("events were lost")

share = report.get("coverage", {}).get("share")
coverage = "not compared" if share is None else f"{share:.1%}"
ratio = recorded / plain if plain > 0 else float("nan")
print(f"{name}: user time {ratio:.2f} times, accounted {coverage}, {report['trace']['events']} events")
for complaint in complaints:
    print(f"FAILED: {name}: {complaint}")
sys.exit(1 if complaints else 0)
