# Speaks to /dev/kfd from Python, as clients without any vendor library do: requests by fcntl.ioctl and by ctypes.
import ctypes
import fcntl
import os
import struct

ALLOC, FREE, VRAM, GPU0 = 0xC0284B16, 0x40084B17, 1, 0x5A00


def allocate(ask, size):
    """The handle of new device memory."""
    payload = bytearray(struct.pack("<4Q2I", 0x700000000000, size, 0, 0, GPU0, VRAM))
    ask(ALLOC, payload)
    return struct.unpack_from("<Q", payload, 16)[0]


kfd = os.open("/dev/kfd", os.O_RDWR)
libc = ctypes.CDLL(None, use_errno=True)


def by_fcntl(request, payload):
    """Through the interpreter's own module."""
    fcntl.ioctl(kfd, request, payload)


def by_ctypes(request, payload):
    """Through a pointer that was looked up by name."""
    place = (ctypes.c_char * len(payload)).from_buffer(payload)
    if libc.ioctl(kfd, ctypes.c_ulong(request), place) != 0:
        raise OSError(ctypes.get_errno(), "ioctl")


handles = [allocate(by_fcntl, size << 20) for size in (2, 4, 6)]
handles += [allocate(by_ctypes, size << 20) for size in (8, 10)]
try:
    allocate(by_fcntl, 1 << 40)
except OSError as error:
    print(error.strerror)
for handle in handles[:-1]:
    by_fcntl(FREE, bytearray(struct.pack("<Q", handle)))
print("done")
