# Each block of PyTorch's allocator in the trace (read without the analyzer) against PyTorch's own account of it.
#     compare_blocks.py TOLD_BLOCKS TRACE ACCOUNT
import json
import pathlib
import re
import subprocess
import sys

told = subprocess.run([sys.argv[1], sys.argv[2]], capture_output=True, text=True).stdout
account = json.loads(pathlib.Path(sys.argv[3]).read_text())
name = pathlib.Path(sys.argv[2]).name.split(".")[0]
found = re.search(r": (\d+) blocks given, (\d+) taken .* (\d+) totals differ, (\d+) strange; .* (\d+) live at the end, (\d+) bytes", told)
numbers = [int(number) for number in found.groups()] if found else []
own = [account["given"], account["taken"], 0, 0, len(account["blocks"]), sum(block["bytes"] for block in account["blocks"])]
print(f"{'held' if numbers == own else 'DIFFERS'}: {name}: PyTorch's blocks, given, taken and live: {own}" + ("" if numbers == own else f", told {told}"))
sys.exit(numbers != own)
