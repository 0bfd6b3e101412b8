"""PyTorch's ranges, which are NVTX's: around a start without the GPU, steps, and a failure that they explain."""

import torch

from common import MIB, say

nvtx = torch.cuda.nvtx

say("level", nvtx.range_push("set up"))
nvtx.mark("before the first call")
blocks = [torch.empty(MIB, dtype=torch.uint8, device="cuda")]
say("level", nvtx.range_pop())
whole = nvtx.range_start("all steps")
for step in range(3):
    with nvtx.range("step {}", step):
        with nvtx.range("forward"):
            blocks.append(torch.empty(MIB, dtype=torch.uint8, device="cuda"))
nvtx.range_end(whole)
try:
    with nvtx.range("too much"):
        torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    say("error", type(error).__name__)
