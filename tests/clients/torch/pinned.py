"""Pinned and registered host memory, with copies to the card and back that go through streams."""

import torch

from common import MIB, say, say_statistics


def main():
    say("round trip", round_trip())
    host = torch.arange(4 * MIB, dtype=torch.uint8).pin_memory()
    say("pinned", host.is_pinned())
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        device = host.to("cuda", non_blocking=True)
        back = torch.empty_like(host, pin_memory=True)
        back.copy_(device, non_blocking=True)
    stream.synchronize()
    say("same bytes", torch.equal(host, back))
    registered = torch.zeros(2 * MIB, dtype=torch.uint8)
    say("registered", int(torch.cuda.cudart().cudaHostRegister(registered.data_ptr(), registered.numel(), 0)))
    say("unregistered", int(torch.cuda.cudart().cudaHostUnregister(registered.data_ptr())))
    del host, back, device
    torch.cuda.synchronize()
    torch._C._host_emptyCache()
    torch.cuda.empty_cache()
    say_statistics()


def round_trip():
    """Pageable memory, as most programs copy."""
    host = torch.arange(MIB, dtype=torch.int64)
    return torch.equal(host, host.cuda().cpu())


if __name__ == "__main__":
    main()
