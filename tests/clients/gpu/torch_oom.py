# Trains a little, then asks for more than the device has: once caught and survived, once not.
import json
import sys

import torch

device = torch.device("cuda", 0)
model = torch.nn.Sequential(torch.nn.Linear(2048, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 2048)).to(device)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(5):
    loss = model(torch.randn(256, 2048, device=device)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
torch.cuda.synchronize()
reserved = torch.cuda.max_memory_reserved(device)
print("expect " + json.dumps({"peak_at_least_bytes": reserved, "ooms": 1, "outcome": "propagated"}))
sys.stdout.flush()
total = torch.cuda.get_device_properties(device).total_memory
try:
    torch.empty(total, dtype=torch.uint8, device=device)
except torch.OutOfMemoryError:
    print("caught")
print(f"went on: {torch.ones(16, device=device).sum().item():.0f}")
sys.stdout.flush()
torch.empty(2 * total, dtype=torch.uint8, device=device)
