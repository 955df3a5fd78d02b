"""Losses: the functions that training minimises, against the CPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import nn

from backend_conformance import Device, Level, check

LOSSES: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "cross_entropy": lambda x, y, i: nn.functional.cross_entropy(x, i, label_smoothing=0.1, ignore_index=1),
    "cross_entropy_weights": lambda x, y, i: nn.functional.cross_entropy(x, i, weight=y[0].abs() + 0.1),
    "cross_entropy_probabilities": lambda x, y, i: nn.functional.cross_entropy(x, y.softmax(1)),
    "nll_loss": lambda x, y, i: nn.functional.nll_loss(x.log_softmax(1), i),
    "mse_loss": lambda x, y, i: nn.functional.mse_loss(x, y),
    "l1_loss": lambda x, y, i: nn.functional.l1_loss(x, y, reduction="sum"),
    "smooth_l1_loss": lambda x, y, i: nn.functional.smooth_l1_loss(x, y, beta=0.5),
    "huber_loss": lambda x, y, i: nn.functional.huber_loss(x, y),
    "binary_cross_entropy": lambda x, y, i: nn.functional.binary_cross_entropy(x.sigmoid(), y.sigmoid()),
    "binary_cross_entropy_with_logits": lambda x, y, i: nn.functional.binary_cross_entropy_with_logits(x, y.sigmoid()),
    "kl_div": lambda x, y, i: nn.functional.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"),
    "poisson_nll_loss": lambda x, y, i: nn.functional.poisson_nll_loss(x, y.abs()),
    "gaussian_nll_loss": lambda x, y, i: nn.functional.gaussian_nll_loss(x, y, y.abs() + 0.1),
    "hinge_embedding_loss": lambda x, y, i: nn.functional.hinge_embedding_loss(x, y.sign()),
    "margin_ranking_loss": lambda x, y, i: nn.functional.margin_ranking_loss(x, y, y.sign(), margin=0.3),
    "multi_margin_loss": lambda x, y, i: nn.functional.multi_margin_loss(x, i),
    "multilabel_margin_loss": lambda x, y, i: nn.functional.multilabel_margin_loss(x, i.view(-1, 1).expand(6, 5)),
    "soft_margin_loss": lambda x, y, i: nn.functional.soft_margin_loss(x, y.sign()),
    "cosine_embedding_loss": lambda x, y, i: nn.functional.cosine_embedding_loss(x, y, i.sign() * 2 - 1),
    "triplet_margin_loss": lambda x, y, i: nn.functional.triplet_margin_loss(x, y, y.flip(0)),
    "ctc_loss": lambda x, y, i: nn.functional.ctc_loss(
        torch.stack([x, y]).transpose(0, 1).log_softmax(2),
        i.clamp(1, 4)[:4].view(2, 2),
        torch.tensor([6, 6]),
        torch.tensor([2, 2]),
    ),
}


@check(level=Level.TRAINS, hook="the operators of the loss", cases=tuple(LOSSES))
def loss_follows_the_cpu(device: Device, case: str) -> None:
    """A loss gives the CPU's value and gradient, without a warning that the CPU does not give.

    The fallback for views and `out=` arguments warns in some losses: the operator needs a kernel of its own.
    """

    def result(where: torch.device | str) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(2)
        x, y = (torch.randn(6, 5, generator=generator).to(where) for _ in range(2))
        x.requires_grad_()
        indices = torch.tensor([0, 2, 1, 4, 3, 2], device=where)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            loss = LOSSES[case](x, y, indices)
            loss.backward()
        assert x.grad is not None
        return [loss, x.grad]

    for got, wanted in zip(result(device.this), result("cpu"), strict=True):
        device.cpu_equal(got, wanted, rtol=2e-4, atol=1e-5)
