# CuPy has the CUDA runtime linked in: everything goes through cuGetProcAddress.
import json

import cupy

blocks = [cupy.zeros(size << 20, dtype=cupy.uint8) for size in (64, 128, 256)]
held = cupy.get_default_memory_pool().total_bytes()
print("expect " + json.dumps({"peak_at_least_bytes": held, "peak_at_most_bytes": held + (64 << 20), "ooms": 1}))
try:
    cupy.zeros(1 << 50, dtype=cupy.uint8)
except cupy.cuda.memory.OutOfMemoryError:
    print("caught")
print(int(sum(block.sum() for block in blocks)))
