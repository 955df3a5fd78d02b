"""Registers the accelerator with Lightning when that is imported, and overrides Lightning's assumptions about devices.

Some decisions have no interface and are made in methods of Lightning's accelerator connector and of its DDP strategy:
a device unknown to Lightning gets the CPU's strategy, CUDA's autocast and a CUDA stream. These methods are wrapped;
for other accelerators they behave as before.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .post_import import when_imported

_NAMESPACES = ("lightning.pytorch", "pytorch_lightning")
_CONNECTOR = "trainer.connectors.accelerator_connector"


def register() -> None:
    """Makes ``Trainer(accelerator="openreg")`` work. Further calls do nothing."""
    for namespace in _NAMESPACES:
        when_imported(f"{namespace}.{_CONNECTOR}", _extend)


def _extend(connector: ModuleType) -> None:
    """Extends the Lightning package that this module belongs to."""
    from .accelerator import DEVICE, OpenregAccelerator

    if DEVICE in connector.AcceleratorRegistry:
        return
    decides, ddp = connector._AcceleratorConnector, connector.DDPStrategy
    wrappers = {
        (decides, "_choose_strategy"): _choose_strategy,
        (decides, "_check_strategy_and_fallback"): _check_strategy_and_fallback,
        (decides, "_check_and_init_precision"): _check_and_init_precision,
        (ddp, "determine_ddp_device_ids"): _determine_ddp_device_ids,
        (ddp, "_register_ddp_hooks"): _register_ddp_hooks,
    }
    missing = [f"{cls.__name__}.{name}" for cls, name in wrappers if not hasattr(cls, name)]
    if missing:  # an exception would break Lightning for programs that do not use the device
        warnings.warn(
            f"lightning_openreg does not support this version of {connector.__name__.partition('.')[0]}, which lacks "
            f"{', '.join(missing)}; the accelerator {DEVICE!r} is not available",
            stacklevel=2,
        )
        return
    for (cls, name), wrapper in wrappers.items():
        _wrap(cls, name, wrapper)
    connector.Accelerator.register(OpenregAccelerator)
    connector.AcceleratorRegistry.register(DEVICE, OpenregAccelerator, description="The accelerator openreg")


def _wrap(cls: type, name: str, wrapper: Callable[[Callable[[], Any], Any], Any]) -> None:
    original = getattr(cls, name)

    @functools.wraps(original)
    def method(self: Any) -> Any:
        return wrapper(lambda: original(self), self)

    setattr(cls, name, method)


def _is_ours(connector: Any) -> bool:
    from .accelerator import OpenregAccelerator

    return isinstance(connector.accelerator, OpenregAccelerator)


def _module_of(something: Any, base: str) -> ModuleType:
    """The module that defines `base`, the name of a class of which `something` is an instance."""
    defines = next(cls for cls in type(something).__mro__ if cls.__name__ == base)
    return sys.modules[defines.__module__]


def _choose_strategy(original: Callable[[], Any], connector: Any) -> Any:
    devices = connector._parallel_devices
    if _is_ours(connector) and len(devices) == 1 and connector._num_nodes_flag == 1:
        return _module_of(connector, "_AcceleratorConnector").SingleDeviceStrategy(device=devices[0])
    return original()


def _check_strategy_and_fallback(original: Callable[[], Any], connector: Any) -> Any:
    """Lightning rejects FSDP on accelerators other than CUDA, so the flag says CUDA during the check."""
    if not _is_ours(connector):
        return original()
    flag, connector._accelerator_flag = connector._accelerator_flag, "cuda"
    try:
        return original()
    finally:
        connector._accelerator_flag = flag


def _check_and_init_precision(original: Callable[[], Any], connector: Any) -> Any:
    """Lightning would use CUDA's autocast for mixed precision."""
    from .accelerator import DEVICE

    module = _module_of(connector, "_AcceleratorConnector")
    is_mixed = connector._precision_flag in ("16-mixed", "bf16-mixed") and connector._precision_plugin_flag is None
    has_own = (module.FSDPStrategy, module.DeepSpeedStrategy)
    if _is_ours(connector) and is_mixed and not isinstance(connector.strategy, has_own):
        connector._validate_precision_choice()
        return module.MixedPrecision(connector._precision_flag, DEVICE)
    return original()


def _is_on_device(strategy: Any) -> bool:
    from .accelerator import DEVICE

    return bool(strategy.root_device.type == DEVICE)


def _determine_ddp_device_ids(original: Callable[[], Any], strategy: Any) -> Any:
    """Given device ids, Lightning would wrap the model on a CUDA stream."""
    return None if _is_on_device(strategy) else original()


def _register_ddp_hooks(original: Callable[[], Any], strategy: Any) -> Any:
    """Lightning would silently skip communication hooks on this device."""
    if not _is_on_device(strategy):
        return original()
    _module_of(strategy, "DDPStrategy")._register_ddp_comm_hook(
        model=strategy.model,
        ddp_comm_state=strategy._ddp_comm_state,
        ddp_comm_hook=strategy._ddp_comm_hook,
        ddp_comm_wrapper=strategy._ddp_comm_wrapper,
    )
    return None
