"""AMD's HIP Python, as its documentation uses it.

    hip_calls.py every      each way to memory, on each device; gives everything back
    hip_calls.py uncaught   takes blocks until one is refused, which ends the program by an exception
    hip_calls.py caught     the same, caught; gives back and goes on with less
    hip_calls.py ignored    a refusal that nobody looks at
    hip_calls.py threads    four threads that take and give back

What it prints is the same in every run; addresses and lines stand in calls.txt.
"""

import ctypes

from hip import hip

from calls import MIB, checked, in_threads, noted, run

BLOCK = 64 * MIB


def plain(device):
    block = checked(noted("hipMalloc", hip.hipMalloc(3 * MIB), 3 * MIB, device))
    coarse = checked(noted("hipExtMallocWithFlags", hip.hipExtMallocWithFlags(5 * MIB, 0), 5 * MIB, device))
    managed = checked(noted("hipMallocManaged", hip.hipMallocManaged(7 * MIB, 1), 7 * MIB, device))
    checked(hip.hipMemset(block, 0, MIB))
    for given in (block, coarse, managed):
        checked(hip.hipFree(given))


def host(device):
    pinned = checked(noted("hipHostMalloc", hip.hipHostMalloc(2 * MIB, 0), 2 * MIB, device))
    checked(hip.hipHostFree(pinned))
    memory = ctypes.create_string_buffer(MIB + 4096)
    start = (ctypes.addressof(memory) + 4095) & ~4095
    checked(noted("hipHostRegister", hip.hipHostRegister(start, MIB, 0), MIB, device, start))
    checked(hip.hipHostUnregister(start))


def stream_ordered(device):
    stream = checked(hip.hipStreamCreate())
    block = checked(noted("hipMallocAsync", hip.hipMallocAsync(9 * MIB, stream), 9 * MIB, device))
    checked(hip.hipFreeAsync(block, stream))
    wanted = hip.hipMemPoolProps()
    wanted.allocType = hip.hipMemAllocationType.hipMemAllocationTypePinned
    wanted.location.type = hip.hipMemLocationType.hipMemLocationTypeDevice
    wanted.location.id = device
    pool = checked(hip.hipMemPoolCreate(wanted))
    block = checked(noted("hipMallocFromPoolAsync", hip.hipMallocFromPoolAsync(11 * MIB, pool, stream), 11 * MIB, device))
    checked(hip.hipFreeAsync(block, stream))
    checked(hip.hipStreamSynchronize(stream))
    checked(hip.hipMemPoolDestroy(pool))
    checked(hip.hipStreamDestroy(stream))


def virtual(device):
    wanted = hip.hipMemAllocationProp()
    wanted.type = hip.hipMemAllocationType.hipMemAllocationTypePinned
    wanted.location.type = hip.hipMemLocationType.hipMemLocationTypeDevice
    wanted.location.id = device
    kind = hip.hipMemAllocationGranularity_flags.hipMemAllocationGranularityRecommended
    size = 2 * checked(hip.hipMemGetAllocationGranularity(wanted, kind))
    handle = checked(noted("hipMemCreate", hip.hipMemCreate(size, wanted, 0), size, device))
    place = checked(hip.hipMemAddressReserve(size, 0, None, 0))
    checked(hip.hipMemMap(place, size, 0, handle, 0))
    access = hip.hipMemAccessDesc()
    access.location.type = hip.hipMemLocationType.hipMemLocationTypeDevice
    access.location.id = device
    access.flags = hip.hipMemAccessFlags.hipMemAccessFlagsProtReadWrite
    checked(hip.hipMemSetAccess(place, size, access, 1))
    checked(hip.hipMemUnmap(place, size))
    checked(hip.hipMemRelease(handle))
    checked(hip.hipMemAddressFree(place, size))


def every():
    for device in range(checked(hip.hipGetDeviceCount())):
        checked(hip.hipSetDevice(device))
        for part in (plain, host, stream_ordered, virtual):
            part(device)
            print(part.__name__, "on", device)
        assert int(noted("hipMalloc", hip.hipMalloc(1 << 44), 1 << 44, device)[0]) != 0


def fill():
    blocks = []
    while True:
        blocks.append(checked(noted("hipMalloc", hip.hipMalloc(BLOCK), BLOCK)))


def caught():
    blocks = []
    while int((answer := noted("hipMalloc", hip.hipMalloc(BLOCK), BLOCK))[0]) == 0:
        blocks.append(answer[1])
    print("refused after", len(blocks), answer[0].name)
    checked(hip.hipFree(blocks.pop()))
    smaller = checked(noted("hipMalloc", hip.hipMalloc(BLOCK // 2), BLOCK // 2))
    for block in (*blocks, smaller):
        checked(hip.hipFree(block))


def ignored():
    block = checked(noted("hipMalloc", hip.hipMalloc(BLOCK), BLOCK))
    assert int(noted("hipMalloc", hip.hipMalloc(1 << 44), 1 << 44)[0]) != 0
    for _ in range(20):
        hip.hipMemset(block, 0, MIB)
    checked(hip.hipFree(block))


def threads():
    def work(index):
        for size in range(1, 26):
            block = checked(noted("hipMalloc", hip.hipMalloc((index + 1) * 100 * size), (index + 1) * 100 * size))
            checked(hip.hipFree(block))

    # HIP Python opens the library at the first call, without a lock.
    checked(hip.hipFree(None))
    in_threads(4, work)


if __name__ == "__main__":
    run(every=every, uncaught=fill, caught=caught, ignored=ignored, threads=threads)
