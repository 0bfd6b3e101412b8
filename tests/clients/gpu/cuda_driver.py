# The CUDA driver by ctypes, nothing else: plain blocks, virtual memory, a stream-ordered block, a refusal.
import ctypes
import json

cuda = ctypes.CDLL("libcuda.so.1")
MIB = 1 << 20


def must(status):
    assert status == 0, status


class Properties(ctypes.Structure):
    # CUmemAllocationProp: type, handle types, location {type, id}, security attributes, flags
    _fields_ = [("words", ctypes.c_int * 4), ("security", ctypes.c_void_p), ("flags", ctypes.c_ulonglong)]


must(cuda.cuInit(0))
context = ctypes.c_void_p()
must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
must(cuda.cuCtxSetCurrent(context))
blocks = []
for size in (3, 5, 7):
    block = ctypes.c_uint64()
    must(cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(size * MIB)))
    blocks.append(block)
properties = Properties((ctypes.c_int * 4)(1, 0, 1, 0), None, 0)
granule = ctypes.c_size_t()
must(cuda.cuMemGetAllocationGranularity(ctypes.byref(granule), ctypes.byref(properties), 0))
size = ctypes.c_size_t(-(-32 * MIB // granule.value) * granule.value)
handle, address = ctypes.c_uint64(), ctypes.c_uint64()
must(cuda.cuMemCreate(ctypes.byref(handle), size, ctypes.byref(properties), ctypes.c_ulonglong(0)))
must(cuda.cuMemAddressReserve(ctypes.byref(address), size, ctypes.c_size_t(0), ctypes.c_uint64(0), ctypes.c_ulonglong(0)))
must(cuda.cuMemMap(address, size, ctypes.c_size_t(0), handle, ctypes.c_ulonglong(0)))
must(cuda.cuMemRelease(handle))
expected = 15 * MIB + size.value
print("expect " + json.dumps({"peak_at_least_bytes": expected, "peak_at_most_bytes": expected, "ooms": 1, "live_at_end": 0}))
refused = cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(1 << 50))
print("refused", refused)
must(cuda.cuMemUnmap(address, size))
must(cuda.cuMemAddressFree(address, size))
for block in blocks:
    must(cuda.cuMemFree_v2(block))
print("done")
