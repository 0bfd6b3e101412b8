"""NVIDIA's cuda-bindings, the driver's functions, as its documentation uses them.

    cuda_driver_calls.py every|uncaught|caught|ignored|threads    as hip_calls.py

What it prints is the same in every run with one version of the bindings; addresses and lines stand in calls.txt.
"""

import ctypes

from cuda.bindings import driver

from calls import MIB, checked, in_threads, noted, run

BLOCK = 64 * MIB


def enter(device):
    """Makes the device's own context the thread's."""
    context = checked(driver.cuDevicePrimaryCtxRetain(checked(driver.cuDeviceGet(device))))
    checked(driver.cuCtxSetCurrent(context))


def plain(device):
    block = checked(noted("cuMemAlloc_v2", driver.cuMemAlloc(3 * MIB), 3 * MIB, device))
    attach = driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value
    managed = checked(noted("cuMemAllocManaged", driver.cuMemAllocManaged(7 * MIB, attach), 7 * MIB, device))
    checked(driver.cuMemsetD8(block, 0, MIB))
    for given in (block, managed):
        checked(driver.cuMemFree(given))


def host(device):
    pinned = checked(noted("cuMemAllocHost_v2", driver.cuMemAllocHost(MIB), MIB, device))
    mapped = checked(noted("cuMemHostAlloc", driver.cuMemHostAlloc(2 * MIB, 0), 2 * MIB, device))
    for given in (pinned, mapped):
        checked(driver.cuMemFreeHost(given))
    memory = ctypes.create_string_buffer(MIB + 4096)
    start = (ctypes.addressof(memory) + 4095) & ~4095
    checked(noted("cuMemHostRegister_v2", driver.cuMemHostRegister(start, MIB, 0), MIB, device, start))
    checked(driver.cuMemHostUnregister(start))


def stream_ordered(device):
    stream = checked(driver.cuStreamCreate(0))
    block = checked(noted("cuMemAllocAsync", driver.cuMemAllocAsync(9 * MIB, stream), 9 * MIB, device))
    checked(driver.cuMemFreeAsync(block, stream))
    wanted = driver.CUmemPoolProps()
    wanted.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    wanted.location.id = device
    pool = checked(driver.cuMemPoolCreate(wanted))
    block = checked(noted("cuMemAllocFromPoolAsync", driver.cuMemAllocFromPoolAsync(11 * MIB, pool, stream), 11 * MIB, device))
    checked(driver.cuMemFreeAsync(block, stream))
    checked(driver.cuStreamSynchronize(stream))
    checked(driver.cuMemPoolDestroy(pool))
    checked(driver.cuStreamDestroy(stream))


def virtual(device):
    wanted = driver.CUmemAllocationProp()
    wanted.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    wanted.location.id = device
    kind = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_RECOMMENDED
    size = 2 * checked(driver.cuMemGetAllocationGranularity(wanted, kind))
    handle = checked(noted("cuMemCreate", driver.cuMemCreate(size, wanted, 0), size, device))
    place = checked(driver.cuMemAddressReserve(size, 0, 0, 0))
    checked(driver.cuMemMap(place, size, 0, handle, 0))
    access = driver.CUmemAccessDesc()
    access.location = wanted.location
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    checked(driver.cuMemSetAccess(place, size, [access], 1))
    checked(driver.cuMemUnmap(place, size))
    checked(driver.cuMemRelease(handle))
    checked(driver.cuMemAddressFree(place, size))


def every():
    for device in range(checked(driver.cuDeviceGetCount())):
        enter(device)
        for part in (plain, host, stream_ordered, virtual):
            part(device)
            print(part.__name__, "on", device)
        assert int(noted("cuMemAlloc_v2", driver.cuMemAlloc(1 << 44), 1 << 44, device)[0]) != 0


def fill():
    blocks = []
    while True:
        blocks.append(checked(noted("cuMemAlloc_v2", driver.cuMemAlloc(BLOCK), BLOCK)))


def caught():
    blocks = []
    while int((answer := noted("cuMemAlloc_v2", driver.cuMemAlloc(BLOCK), BLOCK))[0]) == 0:
        blocks.append(answer[1])
    print("refused after", len(blocks), answer[0].name)
    checked(driver.cuMemFree(blocks.pop()))
    smaller = checked(noted("cuMemAlloc_v2", driver.cuMemAlloc(BLOCK // 2), BLOCK // 2))
    for block in (*blocks, smaller):
        checked(driver.cuMemFree(block))


def ignored():
    block = checked(noted("cuMemAlloc_v2", driver.cuMemAlloc(BLOCK), BLOCK))
    assert int(noted("cuMemAlloc_v2", driver.cuMemAlloc(1 << 44), 1 << 44)[0]) != 0
    for _ in range(20):
        driver.cuMemsetD8(block, 0, MIB)
    checked(driver.cuMemFree(block))


def threads():
    def work(index):
        enter(0)
        for size in range(1, 26):
            block = checked(noted("cuMemAlloc_v2", driver.cuMemAlloc((index + 1) * 100 * size), (index + 1) * 100 * size))
            checked(driver.cuMemFree(block))

    in_threads(4, work)


if __name__ == "__main__":
    checked(driver.cuInit(0))
    enter(0)
    run(every=every, uncaught=fill, caught=caught, ignored=ignored, threads=threads)
