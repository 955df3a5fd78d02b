"""What the device takes of the host's memory.

Pages of torch's libraries are not counted: how many of them the system maps around one that is used depends on how it
has cached the file.
"""

from __future__ import annotations

TINY_TRAINING = """
import os, torch

libraries = os.path.realpath(os.path.join(os.path.dirname(torch.__file__), "lib"))

def resident():  # MB
    total = 0
    with open("/proc/self/smaps") as mappings:
        for line in mappings:
            if line.startswith("Rss:") and not of_torch:
                total += int(line.split()[1])
            elif "-" in line.split()[0]:  # the first line of a mapping: addresses, rights, ..., path
                of_torch = f" {libraries}/" in line
    return total / 1024

if DEVICE == "openreg":
    for index in range(2):
        torch.ones(1, device=f"openreg:{index}")
    torch.accelerator.synchronize()
model = torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.ReLU(), torch.nn.Linear(50, 3)).to(DEVICE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    loss = model(torch.ones(8, 20, device=DEVICE)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
loss.item()
print(resident())
"""


def test_two_devices_and_a_tiny_model_take_less_than_18_mb_beyond_torch(run_python):
    on_cpu = run_python(f"DEVICE = 'cpu'\n{TINY_TRAINING}", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    on_device = run_python(f"DEVICE = 'openreg'\n{TINY_TRAINING}")
    assert float(on_device.stdout) - float(on_cpu.stdout) < 18
