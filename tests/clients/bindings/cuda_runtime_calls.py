"""NVIDIA's cuda-bindings, the runtime's functions, as its documentation uses them.

    cuda_runtime_calls.py every|uncaught|caught|ignored|threads    as hip_calls.py
    cuda_runtime_calls.py start                                    prints what the first calls answer

What it prints is the same in every run with one version of the bindings; addresses and lines stand in calls.txt.
"""

import ctypes

from cuda.bindings import runtime

from calls import MIB, checked, in_threads, refused, run, took

BLOCK = 64 * MIB


def plain(device):
    took("cudaMalloc", block := checked(runtime.cudaMalloc(3 * MIB)), 3 * MIB, device)
    took("cudaMallocManaged", managed := checked(runtime.cudaMallocManaged(7 * MIB, 1)), 7 * MIB, device)
    checked(runtime.cudaMemset(block, 0, MIB))
    for given in (block, managed):
        checked(runtime.cudaFree(given))


def host(device):
    took("cudaMallocHost", pinned := checked(runtime.cudaMallocHost(MIB)), MIB, device)
    took("cudaHostAlloc", mapped := checked(runtime.cudaHostAlloc(2 * MIB, 0)), 2 * MIB, device)
    for given in (pinned, mapped):
        checked(runtime.cudaFreeHost(given))
    memory = ctypes.create_string_buffer(MIB + 4096)
    start = (ctypes.addressof(memory) + 4095) & ~4095
    checked(runtime.cudaHostRegister(start, MIB, 0))
    took("cudaHostRegister", start, MIB, device)
    checked(runtime.cudaHostUnregister(start))


def stream_ordered(device):
    stream = checked(runtime.cudaStreamCreate())
    took("cudaMallocAsync", block := checked(runtime.cudaMallocAsync(9 * MIB, stream)), 9 * MIB, device)
    checked(runtime.cudaFreeAsync(block, stream))
    wanted = runtime.cudaMemPoolProps()
    wanted.allocType = runtime.cudaMemAllocationType.cudaMemAllocationTypePinned
    wanted.location.type = runtime.cudaMemLocationType.cudaMemLocationTypeDevice
    wanted.location.id = device
    pool = checked(runtime.cudaMemPoolCreate(wanted))
    took("cudaMallocFromPoolAsync", block := checked(runtime.cudaMallocFromPoolAsync(11 * MIB, pool, stream)), 11 * MIB, device)
    checked(runtime.cudaFreeAsync(block, stream))
    checked(runtime.cudaStreamSynchronize(stream))
    checked(runtime.cudaMemPoolDestroy(pool))
    checked(runtime.cudaStreamDestroy(stream))


def every():
    for device in range(checked(runtime.cudaGetDeviceCount())):
        checked(runtime.cudaSetDevice(device))
        for part in (plain, host, stream_ordered):
            part(device)
            print(part.__name__, "on", device)
        refused("cudaMalloc", runtime.cudaMalloc(1 << 44), 1 << 44, device)


def fill():
    blocks = []
    while True:
        blocks.append(took("cudaMalloc", checked(runtime.cudaMalloc(BLOCK)), BLOCK))


def caught():
    blocks = []
    while int((answer := runtime.cudaMalloc(BLOCK))[0]) == 0:
        blocks.append(took("cudaMalloc", answer[1], BLOCK))
    refused("cudaMalloc", answer, BLOCK)
    print("refused after", len(blocks), answer[0].name)
    checked(runtime.cudaFree(blocks.pop()))
    took("cudaMalloc", smaller := checked(runtime.cudaMalloc(BLOCK // 2)), BLOCK // 2)
    for block in (*blocks, smaller):
        checked(runtime.cudaFree(block))


def ignored():
    took("cudaMalloc", block := checked(runtime.cudaMalloc(BLOCK)), BLOCK)
    refused("cudaMalloc", runtime.cudaMalloc(1 << 44), 1 << 44)
    for _ in range(20):
        runtime.cudaMemset(block, 0, MIB)
    checked(runtime.cudaFree(block))


def threads():
    def work(index):
        for size in range(1, 26):
            took("cudaMalloc", block := checked(runtime.cudaMalloc((index + 1) * 100 * size)), (index + 1) * 100 * size)
            checked(runtime.cudaFree(block))

    # The bindings of CUDA 11 take the driver's functions at the first call, without a lock.
    checked(runtime.cudaFree(0))
    in_threads(4, work)


def start():
    print("version", *runtime.cudaRuntimeGetVersion())
    print("devices", *runtime.cudaGetDeviceCount())
    print("memory", *runtime.cudaMalloc(MIB))
    print("last", *runtime.cudaGetLastError())


if __name__ == "__main__":
    run(every=every, uncaught=fill, caught=caught, ignored=ignored, threads=threads, start=start)
