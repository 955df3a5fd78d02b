"""Attention for which PyTorch has fixed lists of devices: flex_attention, and attention on DTensors.

PyTorch knows how CUDA's operators of attention are sharded, but the device uses the CPU's operator."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import torch
from torch._C import DispatchKey, DispatchKeySet

from .._slot import KEY, NAME

_FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default
_BATCH, _HEADS, _SEQUENCE = 0, 1, 2  # dimensions; the width of a head is the last


def accept_flex_attention(module: ModuleType) -> None:
    """``torch.nn.attention.flex_attention`` has a list of devices, although its operator is a composite."""
    original = module._validate_device

    @functools.wraps(original)
    def _validate_device(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        if query.device.type != NAME:
            original(query, key, value)

    module._validate_device = _validate_device  # type: ignore[attr-defined]


def register_flex_autocast(module: ModuleType) -> None:
    """``torch._higher_order_ops.flex_attention`` has autocast kernels for CPU and CUDA only; this adds the device's."""
    key = getattr(DispatchKey, f"Autocast{KEY}")

    @module.flex_attention.py_impl(key)  # type: ignore[untyped-decorator]
    def flex_attention_autocast(*args: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(DispatchKeySet(key)):
            return module._flex_attention_autocast_impl(*args)


def register_sharding(_: ModuleType) -> None:
    """Called when torch.distributed.tensor is imported: attention may be split by batches and by heads, as on CUDA."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor._op_schema import RuntimeSchemaInfo
    from torch.distributed.tensor._ops.utils import expand_to_full_mesh_op_strategy, register_op_strategy

    def strategy(op_schema: Any) -> Any:
        results, arguments = len(op_schema.op._schema.returns), len(op_schema.args_strategy)
        mask = op_schema.kwargs_schema.get("attn_mask")

        def choice(dim: int | None) -> list[Any]:
            placement = Replicate() if dim is None else Shard(dim)
            placements: list[Any] = [placement] * (results + arguments)
            if mask is not None:
                split = dim is not None and mask.ndim == 4 and mask.shape[dim] > 1
                placements.append(placement if split else Replicate())
            return placements

        choices = [choice(None), choice(_BATCH), choice(_HEADS)]
        mesh = op_schema.get_mesh_from_args(validate=False)
        found: Any = expand_to_full_mesh_op_strategy(mesh, op_schema, choices, input_index=results)
        if mask is not None:
            # DTensor redistributes positional arguments, but not keyword arguments such as the mask.
            given = mask.strategies[0].output_spec.placements
            found.strategies = [each for each in found.strategies if each.input_specs[-1].placements == given]
            if not found.strategies:
                raise NotImplementedError(
                    f"openreg: attention on DTensors does not support this attn_mask (got {given}, expected "
                    "Replicate(), or Shard() of batches or heads)"
                )
        return found

    register_op_strategy([_FORWARD, _BACKWARD], RuntimeSchemaInfo(static_kwargkey=["attn_mask"]))(strategy)


def register_ring(module: ModuleType) -> None:
    """Called with PyTorch's module of context parallelism, which runs attention on sequences that are split over ranks
    and passes keys and values around the ring."""

    def call(op: Any, args: Any, kwargs: Any) -> Any:
        op_info = module.DTensor._op_dispatcher.unwrap_to_op_info(op, args, kwargs)
        query = args[0 if op is _FORWARD else 1]
        if kwargs.get("attn_mask") is not None:
            raise NotImplementedError(
                "openreg: context parallelism does not support attn_mask, as on CUDA; use is_causal"
            )
        ring = _ring_forward if op is _FORWARD else _ring_backward
        results = ring(module, query.device_mesh.get_group(), *op_info.local_args, **op_info.local_kwargs)
        return tuple(
            module.DTensor.from_local(result, query.device_mesh, query.placements, run_check=False)
            for result in results
        )

    module.custom_ops.update({_FORWARD: call, _BACKWARD: call})


def _ring_forward(
    module: Any,
    group: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **options: Any,
) -> Any:
    return module._templated_ring_attention(
        group, _SEQUENCE, _FORWARD, query, key, value, is_causal, dropout_p=dropout_p, **options
    )


def _ring_backward(
    module: Any,
    group: Any,
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    dropout_p: float,
    is_causal: bool,
    **options: Any,
) -> Any:
    return module._templated_ring_attention_backward(
        group,
        _SEQUENCE,
        _BACKWARD,
        grad_out,
        "grad_out",
        query,
        key,
        value,
        out,
        logsumexp,
        is_causal,
        dropout_p=dropout_p,
        **options,
    )
