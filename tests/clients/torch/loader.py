"""A DataLoader whose workers are forked after the card is in use, and whose batches are pinned by a thread."""

import torch
from torch.utils.data import DataLoader, Dataset

from common import MIB, say, say_statistics


class Samples(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((64 * 1024,), index, dtype=torch.int32)


def main():
    # The card is in use before the workers exist.
    kept = torch.ones(16 * MIB, dtype=torch.uint8, device="cuda")
    loader = DataLoader(Samples(), batch_size=8, num_workers=2, pin_memory=True, multiprocessing_context="fork")
    batches = 0
    for batch in loader:
        on_card = batch.to("cuda", non_blocking=True)
        assert torch.equal(on_card.cpu(), batch) and batch.is_pinned()
        batches += 1
    say("batches", batches)
    say("kept", kept.numel())
    del kept, on_card, batch
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    say_statistics()


if __name__ == "__main__":
    main()
