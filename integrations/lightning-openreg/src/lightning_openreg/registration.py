"""Makes the accelerator known to Lightning when that is imported, and corrects what Lightning assumes of all devices.

What Lightning has no interface for is decided in methods of its Trainer's connector and of its DDP strategy: a device
that it does not know gets the CPU's strategy, CUDA's autocast and a CUDA stream. These methods are wrapped; for other
accelerators they do what they did.
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
    """Makes ``Trainer(accelerator="openreg")`` work. Does nothing the second time."""
    for namespace in _NAMESPACES:
        when_imported(f"{namespace}.{_CONNECTOR}", _extend)


def _extend(connector: ModuleType) -> None:
    """Extends the Lightning that this module is a part of."""
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
    if missing:  # raising would take Lightning away from programs that do not use the device
        warnings.warn(
            f"lightning_openreg does not know this version of {connector.__name__.partition('.')[0]}, which has no "
            f"{', '.join(missing)}: there is no accelerator {DEVICE!r}",
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
    """The module that defines the class of that name, of which `something` is an instance."""
    defines = next(cls for cls in type(something).__mro__ if cls.__name__ == base)
    return sys.modules[defines.__module__]


def _choose_strategy(original: Callable[[], Any], connector: Any) -> Any:
    devices = connector._parallel_devices
    if _is_ours(connector) and len(devices) == 1 and connector._num_nodes_flag == 1:
        return _module_of(connector, "_AcceleratorConnector").SingleDeviceStrategy(device=devices[0])
    return original()


def _check_strategy_and_fallback(original: Callable[[], Any], connector: Any) -> Any:
    """FSDP is refused on other accelerators than CUDA's; so this one is taken for CUDA meanwhile."""
    if not _is_ours(connector):
        return original()
    flag, connector._accelerator_flag = connector._accelerator_flag, "cuda"
    try:
        return original()
    finally:
        connector._accelerator_flag = flag


def _check_and_init_precision(original: Callable[[], Any], connector: Any) -> Any:
    """Mixed precision would be CUDA's."""
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
    """With identities of devices the model would be wrapped on a CUDA stream."""
    return None if _is_on_device(strategy) else original()


def _register_ddp_hooks(original: Callable[[], Any], strategy: Any) -> Any:
    """Communication hooks would be left out silently."""
    if not _is_on_device(strategy):
        return original()
    _module_of(strategy, "DDPStrategy")._register_ddp_comm_hook(
        model=strategy.model,
        ddp_comm_state=strategy._ddp_comm_state,
        ddp_comm_hook=strategy._ddp_comm_hook,
        ddp_comm_wrapper=strategy._ddp_comm_wrapper,
    )
    return None
