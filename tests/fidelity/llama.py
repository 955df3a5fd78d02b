"""Llama as torchtitan trains it, in eager mode: of June 2025 (the model for debugging), December 2024 (8B) and March
2024 (7B). The figure is what PyTorch reserves at most in a step, on one of the ranks."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, MixedPrecisionPolicy, fully_shard
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

STEPS = 3
ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


@dataclass(frozen=True)
class Options:
    width: int = 4096
    inner: int = 14336
    layers: int = 32
    heads: int = 32
    key_heads: int = 8
    words: int = 128256
    longest: int = 8192
    batch: int = 2
    length: int = 8192
    checkpoints: str = "operators"  # or full, none, every second layer
    wide_norm: bool = False  # scales in float32
    kept_scores: bool = False  # in float32, until those of the next step
    resharded: bool = False  # embedding and head after the forward pass; FSDP2 of 2024 never does
    fused_optimizer: bool = False
    fsdp1: bool = False
    compiled: bool = False


EIGHT_BILLION = Options()
SEVEN_BILLION = Options(
    inner=11008,
    key_heads=32,
    words=32000,
    longest=32768,
    batch=8,
    length=2048,
    checkpoints="full",
    kept_scores=True,
)
SEVENTY_BILLION = Options(
    width=8192,
    inner=28672,
    layers=80,
    heads=64,
    words=32000,
    longest=4096,
    batch=1,
    length=4096,
    checkpoints="full",
)
DEBUG = Options(
    width=256,
    inner=768,
    layers=6,
    heads=16,
    key_heads=16,
    words=2256,
    longest=2048,
    batch=8,
    length=2048,
    checkpoints="every second layer",
    wide_norm=True,
    fused_optimizer=True,
)


class RMSNorm(nn.Module):
    def __init__(self, options: Options) -> None:
        super().__init__()
        self.weight, self.wide = nn.Parameter(torch.ones(options.width)), options.wide_norm

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.wide:
            return self.of(x.float()).mul(self.weight).type_as(x)
        return self.of(x.float()).type_as(x) * self.weight

    def of(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)


def rotated(queries: torch.Tensor, keys: torch.Tensor, angles: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    query_pairs = torch.view_as_complex(queries.float().reshape(*queries.shape[:-1], -1, 2))
    key_pairs = torch.view_as_complex(keys.float().reshape(*keys.shape[:-1], -1, 2))
    angles = angles[: queries.shape[1]].view(1, queries.shape[1], 1, -1)
    wide_queries = torch.view_as_real(query_pairs * angles).flatten(3)
    wide_keys = torch.view_as_real(key_pairs * angles).flatten(3)
    return wide_queries.type_as(queries), wide_keys.type_as(keys)


class Attention(nn.Module):
    def __init__(self, options: Options) -> None:
        super().__init__()
        self.repeats, self.head = options.heads // options.key_heads, options.width // options.heads
        self.wq = nn.Linear(options.width, options.width, bias=False)
        self.wk, self.wv = (nn.Linear(options.width, options.key_heads * self.head, bias=False) for _ in range(2))
        self.wo = nn.Linear(options.width, options.width, bias=False)

    def forward(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        queries, keys, values = self.wq(x), self.wk(x), self.wv(x)
        queries, keys, values = (each.view(batch, length, -1, self.head) for each in (queries, keys, values))
        queries, keys = rotated(queries, keys, angles)
        more_keys, more_values = (self.repeated(each) for each in (keys, values))
        queries, more_keys, more_values = (each.transpose(1, 2) for each in (queries, more_keys, more_values))
        mixed = F.scaled_dot_product_attention(queries, more_keys, more_values, is_causal=True)
        mixed = mixed.transpose(1, 2).contiguous()
        return self.wo(mixed.view(batch, length, -1))

    def repeated(self, x: torch.Tensor) -> torch.Tensor:
        if self.repeats == 1:
            return x
        batch, length, heads, width = x.shape
        many = x.unsqueeze(3).expand(batch, length, heads, self.repeats, width)
        return many.reshape(batch, length, heads * self.repeats, width)


class FeedForward(nn.Module):
    def __init__(self, options: Options) -> None:
        super().__init__()
        self.w1, self.w3 = (nn.Linear(options.width, options.inner, bias=False) for _ in range(2))
        self.w2 = nn.Linear(options.inner, options.width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self, options: Options) -> None:
        super().__init__()
        self.attention, self.feed_forward = Attention(options), FeedForward(options)
        self.attention_norm, self.ffn_norm = RMSNorm(options), RMSNorm(options)

    def forward(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), angles)
        return x + self.feed_forward(self.ffn_norm(x))


def angles_of(options: Options) -> torch.Tensor:
    head = options.width // options.heads
    frequencies = 1.0 / 500_000 ** (torch.arange(0, head, 2)[: head // 2].float() / head)
    angles = torch.outer(torch.arange(options.longest), frequencies).float()
    return torch.polar(torch.ones_like(angles), angles)


class Model(nn.Module):
    def __init__(self, options: Options) -> None:
        super().__init__()
        self.words = nn.Embedding(options.words, options.width)
        self.register_buffer("angles", angles_of(options))
        self.layers = nn.ModuleList(Block(options) for _ in range(options.layers))
        self.norm, self.output = RMSNorm(options), nn.Linear(options.width, options.words, bias=False)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.words(text)
        for layer in self.layers:
            x = layer(x, self.angles)
        x = self.norm(x)
        return self.output(x)


SAVED = {
    torch.ops.aten.mm.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops._c10d_functional.reduce_scatter_tensor.default,
    torch.ops.aten.abs.default,
    torch.ops.aten.max.default,
}


def every_second_product() -> Any:
    """Saves what takes long to compute, of matrix products every second one."""
    products: Counter[bool] = Counter()

    def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        is_product = op == torch.ops.aten.mm.default
        products[context.is_recompute] += is_product
        saved = op in SAVED and not (is_product and products[context.is_recompute] % 2 == 0)
        return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def checkpointed(layers: nn.ModuleList, options: Options) -> None:
    for number, layer in enumerate(layers):
        if options.checkpoints == "operators":
            layers[number] = checkpoint_wrapper(layer, context_fn=every_second_product, preserve_rng_state=False)
        elif options.checkpoints == "full" or (options.checkpoints == "every second layer" and number % 2 == 1):
            layers[number] = checkpoint_wrapper(layer, preserve_rng_state=False)


def compiled(layers: nn.ModuleList) -> None:
    for number, layer in enumerate(layers):
        layers[number] = torch.compile(layer, fullgraph=True)


def sharded(model: Model, mesh: Any, resharded: bool) -> nn.Module:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for number, layer in enumerate(model.layers):
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=number < len(model.layers) - 1)
    return fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=resharded)


def sharded_flat(model: Model, device: torch.device) -> nn.Module:
    precision = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    layers = set(model.layers)
    return FullyShardedDataParallel(
        model,
        auto_wrap_policy=functools.partial(_is_one_of, layers),
        mixed_precision=precision,
        device_id=device,
        use_orig_params=True,
        param_init_fn=lambda module: module.to_empty(device=device, recurse=False),
    )


def _is_one_of(layers: set[nn.Module], module: nn.Module, recurse: bool, **_: Any) -> bool:
    return recurse or module in layers


def loss_of(
    model: Callable[[torch.Tensor], torch.Tensor], options: Options, device: torch.device, kept: list[torch.Tensor]
) -> torch.Tensor:
    """After the backward pass. Scores that are kept replace those in the list after the forward pass."""
    text = torch.randint(options.words, (options.batch, options.length + 1))
    given, target = text[:, :-1].contiguous().to(device), text[:, 1:].contiguous().to(device)
    scores = model(given)
    if options.kept_scores:
        scores = scores.float()
        kept[:] = [scores]
    loss = F.cross_entropy(scores.flatten(0, 1).float(), target.flatten(0, 1))
    del scores
    loss.backward()
    return loss


def train(options: Options) -> list[dict[str, float]]:
    """For each step what is reserved and active at most, in GiB."""
    device = torch.accelerator.current_accelerator()
    assert device is not None
    memory = torch.get_device_module(device)
    if not dist.is_initialized():
        dist.init_process_group()
    mesh = dist.init_device_mesh(device.type, (dist.get_world_size(),))
    with torch.device("meta"):
        model = Model(options)
    checkpointed(model.layers, options)
    if options.compiled:
        compiled(model.layers)
    net = sharded_flat(model, device) if options.fsdp1 else sharded(model, mesh, options.resharded)
    if not options.fsdp1:
        net.to_empty(device=device)
    with device:
        model.angles = angles_of(options)
    how = {"fused": True} if options.fused_optimizer else {"foreach": True}
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, **how)
    peaks = []
    kept: list[torch.Tensor] = []
    for _ in range(STEPS):
        memory.reset_peak_memory_stats()
        optimizer.zero_grad()
        with sdpa_kernel(ATTENTION, set_priority=True):
            loss = loss_of(net, options, device, kept)
        if options.fsdp1:
            net.clip_grad_norm_(1.0)
        else:
            nn.utils.clip_grad_norm_(net.parameters(), 1.0, foreach=True)
        optimizer.step()
        loss.item()
        stats = memory.memory_stats()
        peaks.append({name: stats[f"{name}_bytes.all.peak"] / 2**30 for name in ("reserved", "active")})
    return peaks


if __name__ == "__main__":
    print(train(EIGHT_BILLION))
