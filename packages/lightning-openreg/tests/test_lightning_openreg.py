"""Lightning's Trainer selects the device by name, in both of Lightning's packages."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(
    "lightning_openreg", reason="lightning-openreg is not installed; pip install packages/lightning-openreg"
)
from lightning_openreg.accelerator import OpenregAccelerator
from lightning_openreg.post_import import when_imported

PROGRAM = Path(__file__).parent / "train_on_openreg.py"
LIGHTNING = ["lightning.pytorch", "pytorch_lightning"]


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=240, env=environment, cwd="/"
    )


@functools.cache
def train(namespace: str, how: str) -> dict[str, Any]:
    package = namespace.partition(".")[0]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    result = run(str(PROGRAM), namespace, how)
    assert result.returncode == 0, result.stderr
    trained: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return trained


@pytest.mark.full
@pytest.mark.parametrize(
    ("namespace", "devices", "expected"),
    [(LIGHTNING[0], "1", "openreg:0"), (LIGHTNING[0], "[1]", "openreg:1"), (LIGHTNING[1], "1", "openreg:0")],
)
def test_one_device_trains(namespace: str, devices: str, expected: str) -> None:
    result = train(namespace, f'{{"devices": {devices}}}')
    assert result["seen"] == [expected, "torch.float32"]
    assert (result["strategy"], result["processes"]) == ("SingleDeviceStrategy", 1)
    assert result["losses"][-1] < result["losses"][0] / 2
    assert result["validated"] < sum(result["losses"][:4]) / 8


SEVERAL = {
    '{"devices": 2}': ("DDPStrategy", "torch.float32", 1e-4),
    '{"devices": 2, "strategy": "fsdp-object"}': ("FSDPStrategy", "torch.float32", 1e-4),
    '{"devices": 2, "precision": "bf16-mixed"}': ("DDPStrategy", "torch.bfloat16", 3e-2),
}


@pytest.mark.full
@pytest.mark.parametrize("how", SEVERAL)
def test_two_devices_train_as_one_process(how: str) -> None:
    strategy, dtype, tolerance = SEVERAL[how]
    result, expected = train(LIGHTNING[0], how), train(LIGHTNING[0], '{"devices": 1}')
    assert (result["strategy"], result["processes"], result["backend"]) == (strategy, 2, "occl")
    assert result["seen"] == ["openreg:0", dtype]
    assert result["losses"] == pytest.approx(expected["losses"], rel=tolerance)


@pytest.mark.full
def test_two_devices_train_in_the_other_namespace() -> None:
    assert train(LIGHTNING[1], '{"devices": 2}')["losses"] == train(LIGHTNING[0], '{"devices": 2}')["losses"]


@pytest.mark.full
def test_float16_is_scaled() -> None:
    result = train(LIGHTNING[0], '{"devices": 1, "precision": "16-mixed"}')
    assert result["seen"] == ["openreg:0", "torch.float16"]
    assert result["losses"][-1] < result["losses"][0] / 2


@pytest.mark.full
def test_communication_hooks_are_registered() -> None:
    losses = train(LIGHTNING[0], '{"devices": 2, "hook": true}')["losses"]
    first, last = losses[:4], losses[-4:]
    assert sum(last) == pytest.approx(sum(first), rel=1e-3)  # without gradients AdamW only decays the weights slightly


USE = """
import sys
{imports}
import torch
assert not [name for name in sys.modules if name.startswith(("lightning.", "pytorch_lightning"))]
import {namespace} as pl
trainer = pl.Trainer(accelerator="openreg", devices=1, logger=False)
print(trainer.strategy.root_device)
"""


@pytest.mark.full
@pytest.mark.parametrize("namespace", LIGHTNING)
def test_no_import_is_needed(namespace: str) -> None:
    if importlib.util.find_spec(namespace.partition(".")[0]) is None:
        pytest.skip(f"{namespace.partition('.')[0]} is not installed")
    assert run("-c", USE.format(imports="", namespace=namespace)).stdout.strip().endswith("openreg:0")
    variables = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    explicit = USE.format(imports="import torch_openreg, lightning_openreg", namespace=namespace)
    assert run("-c", explicit, **variables).stdout.strip().endswith("openreg:0")


@pytest.mark.full
def test_an_unsupported_version_of_lightning_works_without_the_device() -> None:
    if importlib.util.find_spec("lightning") is None:
        pytest.skip("lightning is not installed")
    code = (
        "import lightning_openreg\n"
        "import sys\n"
        "finders = [f for f in sys.meta_path if getattr(f, 'name', '').startswith('lightning.')]\n"
        "original = finders[0].callback\n"
        "def without(module):\n"
        "    del module.DDPStrategy._register_ddp_hooks\n"
        "    original(module)\n"
        "finders[0].callback = without\n"
        "import lightning.pytorch as pl\n"
        "print(pl.Trainer(accelerator='cpu', logger=False).strategy.root_device)\n"
    )
    result = run("-c", code)
    assert result.stdout.strip().endswith("cpu"), result.stderr
    assert "does not support this version of lightning, which lacks DDPStrategy._register_ddp_hooks" in result.stderr


@pytest.mark.parametrize(
    ("given", "expected"), [(1, [0]), (2, [0, 1]), (-1, [0, 1]), ("1", [0]), ("0,1", [0, 1]), ("1,", [1])]
)
def test_devices_have_the_forms_that_lightning_accepts(given: Any, expected: list[int]) -> None:
    assert OpenregAccelerator.parse_devices(given) == expected


@pytest.mark.parametrize("given", [3, [0, 0], [2], "0,5", [], "", "x", "0,x", True])
def test_invalid_devices_are_rejected(given: Any) -> None:
    with pytest.raises(ValueError, match=r"openreg: invalid devices .*expected 1 to 2 of the indices 0 to 1"):
        OpenregAccelerator.parse_devices(given)


def test_a_device_of_another_type_is_rejected() -> None:
    import torch

    with pytest.raises(ValueError, match=r"another type \(got cpu, expected openreg\)"):
        OpenregAccelerator().setup_device(torch.device("cpu"))


def test_callbacks_run_once_after_the_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "watched_module.py").write_text("value = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    seen: list[int] = []
    for _ in range(2):
        when_imported("watched_module", lambda module: seen.append(module.value))
    assert importlib.util.find_spec("watched_module") is not None  # finding a module does not import it
    assert seen == []
    import watched_module  # type: ignore[import-not-found]

    assert seen == [3]
    importlib.reload(watched_module)
    assert seen == [3]
    when_imported("watched_module", lambda module: seen.append(module.value + 1))
    assert seen == [3, 4]
    monkeypatch.delitem(sys.modules, "watched_module")
