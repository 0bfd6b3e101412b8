"""NVIDIA's cuda-bindings, the runtime's functions, as its documentation uses them.

    cuda_runtime_calls.py every|uncaught|caught|ignored    as hip_calls.py
    cuda_runtime_calls.py start                            prints what the first calls answer

Threads are left to the driver's functions: the runtime of the bindings of CUDA 11 keeps what it knows of them without a lock.
What it prints is the same in every run with one version of the bindings; addresses and lines stand in calls.txt.
"""

import ctypes

from cuda.bindings import runtime

from calls import MIB, checked, noted, run

BLOCK = 64 * MIB


def plain(device):
    block = checked(noted("cudaMalloc", runtime.cudaMalloc(3 * MIB), 3 * MIB, device))
    managed = checked(noted("cudaMallocManaged", runtime.cudaMallocManaged(7 * MIB, 1), 7 * MIB, device))
    checked(runtime.cudaMemset(block, 0, MIB))
    for given in (block, managed):
        checked(runtime.cudaFree(given))


def host(device):
    pinned = checked(noted("cudaMallocHost", runtime.cudaMallocHost(MIB), MIB, device))
    mapped = checked(noted("cudaHostAlloc", runtime.cudaHostAlloc(2 * MIB, 0), 2 * MIB, device))
    for given in (pinned, mapped):
        checked(runtime.cudaFreeHost(given))
    memory = ctypes.create_string_buffer(MIB + 4096)
    start = (ctypes.addressof(memory) + 4095) & ~4095
    checked(noted("cudaHostRegister", runtime.cudaHostRegister(start, MIB, 0), MIB, device, start))
    checked(runtime.cudaHostUnregister(start))


def stream_ordered(device):
    stream = checked(runtime.cudaStreamCreate())
    block = checked(noted("cudaMallocAsync", runtime.cudaMallocAsync(9 * MIB, stream), 9 * MIB, device))
    checked(runtime.cudaFreeAsync(block, stream))
    wanted = runtime.cudaMemPoolProps()
    wanted.allocType = runtime.cudaMemAllocationType.cudaMemAllocationTypePinned
    wanted.location.type = runtime.cudaMemLocationType.cudaMemLocationTypeDevice
    wanted.location.id = device
    pool = checked(runtime.cudaMemPoolCreate(wanted))
    block = checked(noted("cudaMallocFromPoolAsync", runtime.cudaMallocFromPoolAsync(11 * MIB, pool, stream), 11 * MIB, device))
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
        assert int(noted("cudaMalloc", runtime.cudaMalloc(1 << 44), 1 << 44, device)[0]) != 0


def fill():
    blocks = []
    while True:
        blocks.append(checked(noted("cudaMalloc", runtime.cudaMalloc(BLOCK), BLOCK)))


def caught():
    blocks = []
    while int((answer := noted("cudaMalloc", runtime.cudaMalloc(BLOCK), BLOCK))[0]) == 0:
        blocks.append(answer[1])
    print("refused after", len(blocks), answer[0].name)
    checked(runtime.cudaFree(blocks.pop()))
    smaller = checked(noted("cudaMalloc", runtime.cudaMalloc(BLOCK // 2), BLOCK // 2))
    for block in (*blocks, smaller):
        checked(runtime.cudaFree(block))


def ignored():
    block = checked(noted("cudaMalloc", runtime.cudaMalloc(BLOCK), BLOCK))
    assert int(noted("cudaMalloc", runtime.cudaMalloc(1 << 44), 1 << 44)[0]) != 0
    for _ in range(20):
        runtime.cudaMemset(block, 0, MIB)
    checked(runtime.cudaFree(block))


def start():
    print("version", *runtime.cudaRuntimeGetVersion())
    print("devices", *runtime.cudaGetDeviceCount())
    print("memory", *runtime.cudaMalloc(MIB))
    print("last", *runtime.cudaGetLastError())


if __name__ == "__main__":
    run(every=every, uncaught=fill, caught=caught, ignored=ignored, start=start)
