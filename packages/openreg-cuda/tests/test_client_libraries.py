"""Libraries that say "cuda" and nothing else: each function is what a user of one writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

pytestmark = pytest.mark.full


def samples(count: int = 32) -> TensorDataset:
    inputs = torch.randn(count, 8)
    return TensorDataset(inputs, (inputs.sum(1) > 0).long())


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))


def test_einops_rearranges() -> None:
    einops = pytest.importorskip("einops")
    images = torch.randn(2, 3, 4, 4, device="cuda")
    patches = einops.rearrange(images, "b c (h p) (w q) -> b (h w) (c p q)", p=2, q=2)
    assert patches.is_cuda and patches.shape == (2, 4, 12)
    assert torch.equal(einops.reduce(images, "b c h w -> b c", "max"), images.amax((2, 3)))


def test_kornia_filters_images() -> None:
    kornia = pytest.importorskip("kornia")
    images = torch.rand(2, 3, 16, 16, device="cuda")
    blurred = kornia.filters.gaussian_blur2d(images, (3, 3), (1.0, 1.0))
    assert blurred.is_cuda
    torch.testing.assert_close(blurred.cpu(), kornia.filters.gaussian_blur2d(images.cpu(), (3, 3), (1.0, 1.0)))
    assert kornia.geometry.warp_affine(images, torch.eye(2, 3, device="cuda").repeat(2, 1, 1), (16, 16)).is_cuda


def test_skorch_fits() -> None:
    skorch = pytest.importorskip("skorch")
    inputs, labels = samples().tensors
    model = skorch.NeuralNetClassifier(
        network(), criterion=nn.CrossEntropyLoss, max_epochs=2, device="cuda", train_split=None, verbose=0
    )
    model.fit(inputs.numpy(), labels.numpy())
    assert next(model.module_.parameters()).is_cuda
    assert model.predict(inputs.numpy()).shape == (32,)


def test_peft_trains_an_adapter() -> None:
    peft = pytest.importorskip("peft")
    transformers = pytest.importorskip("transformers")
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=32, n_positions=16)
    )
    model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", r=2, fan_in_fan_out=True)).to("cuda")
    tokens = torch.randint(32, (2, 8), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        model(tokens, labels=tokens).loss.backward()
    trained = [each.grad for each in model.parameters() if each.requires_grad]
    assert trained and all(gradient.is_cuda for gradient in trained)
    assert model.generate(tokens[:, :4], max_new_tokens=2, do_sample=False, pad_token_id=0).shape == (2, 6)


def test_diffusers_denoise() -> None:
    diffusers = pytest.importorskip("diffusers")
    unet = diffusers.UNet2DModel(
        sample_size=8,
        in_channels=1,
        out_channels=1,
        block_out_channels=(8, 8),
        norm_num_groups=4,
        layers_per_block=1,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )
    scheduler = diffusers.DDPMScheduler(num_train_timesteps=4)
    pipeline = diffusers.DDPMPipeline(unet, scheduler).to("cuda")
    pipeline.set_progress_bar_config(disable=True)
    generator = torch.Generator("cuda").manual_seed(0)
    images = pipeline(1, generator=generator, num_inference_steps=2, output_type="np").images
    assert images.shape == (1, 8, 8, 1)


def test_torch_geometric_convolves_graphs() -> None:
    pytest.importorskip("torch_geometric")
    from torch_geometric.data import Data
    from torch_geometric.nn import GCNConv, global_mean_pool

    graph = Data(x=torch.randn(4, 8), edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])).to("cuda")
    convolution = GCNConv(8, 4).to("cuda")
    out = global_mean_pool(convolution(graph.x, graph.edge_index), torch.zeros(4, dtype=torch.long, device="cuda"))
    out.sum().backward()
    assert out.is_cuda and next(convolution.parameters()).grad.is_cuda


def test_pyro_infers() -> None:
    pyro = pytest.importorskip("pyro")
    from pyro import distributions, infer, optim

    data = torch.randn(16, device="cuda") + 3

    def model(data: torch.Tensor) -> None:
        mean = pyro.sample("mean", distributions.Normal(torch.zeros((), device="cuda"), 10.0))
        with pyro.plate("data", len(data)):
            pyro.sample("x", distributions.Normal(mean, 1.0), obs=data)

    guide = infer.autoguide.AutoNormal(model)
    inference = infer.SVI(model, guide, optim.Adam({"lr": 0.1}), infer.Trace_ELBO())
    losses = [inference.step(data) for _ in range(30)]
    assert losses[-1] < losses[0] and guide.median()["mean"].is_cuda


def test_gpytorch_fits_a_process() -> None:
    gpytorch = pytest.importorskip("gpytorch")

    class Model(gpytorch.models.ExactGP):  # type: ignore[misc, name-defined]
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.mean = gpytorch.means.ConstantMean()
            self.covariance = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x: torch.Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.covariance(x))

    x = torch.linspace(0, 1, 16, device="cuda")
    likelihood = gpytorch.likelihoods.GaussianLikelihood().cuda()
    model = Model(x, torch.sin(6 * x), likelihood).cuda()
    loss = -gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)(model(x), torch.sin(6 * x))
    loss.backward()
    model.eval()
    with torch.no_grad():
        assert loss.is_cuda and model(x[:3]).mean.is_cuda


def test_botorch_optimizes() -> None:
    pytest.importorskip("botorch")
    from botorch.acquisition import LogExpectedImprovement
    from botorch.models import SingleTaskGP
    from botorch.optim import optimize_acqf

    x = torch.rand(6, 2, dtype=torch.float64, device="cuda")
    model = SingleTaskGP(x, x.sum(1, keepdim=True))
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64, device="cuda")
    candidate, _ = optimize_acqf(
        LogExpectedImprovement(model, best_f=x.sum(1).max()), bounds, q=1, num_restarts=2, raw_samples=4
    )
    assert candidate.is_cuda and ((candidate >= 0) & (candidate <= 1)).all()


def test_captum_attributes() -> None:
    attr = pytest.importorskip("captum.attr")
    inputs = torch.randn(2, 8, device="cuda", requires_grad=True)
    attributions = attr.IntegratedGradients(network().cuda()).attribute(inputs, target=1, n_steps=4)
    assert attributions.is_cuda and attributions.shape == inputs.shape


def test_torchmetrics_accumulate() -> None:
    classification = pytest.importorskip("torchmetrics.classification")
    metric = classification.MulticlassAccuracy(num_classes=2, average="micro").to("cuda")
    metric.update(torch.tensor([0, 1, 1], device="cuda"), torch.tensor([0, 1, 0], device="cuda"))
    assert metric.compute().is_cuda and metric.compute().item() == pytest.approx(2 / 3)


def test_torchdiffeq_integrates() -> None:
    torchdiffeq = pytest.importorskip("torchdiffeq")
    times = torch.linspace(0, 1, 3, device="cuda")
    start = torch.ones(1, device="cuda", requires_grad=True)
    end = torchdiffeq.odeint(lambda t, y: -y, start, times)[-1]
    end.sum().backward()
    torch.testing.assert_close(end.detach().cpu(), torch.exp(torch.tensor([-1.0])), rtol=1e-3, atol=1e-4)


def test_tensordict_moves() -> None:
    tensordict = pytest.importorskip("tensordict")
    data = tensordict.TensorDict({"a": torch.ones(3), "b": {"c": torch.zeros(3, 2)}}, batch_size=[3]).to("cuda")
    assert data.device.type == "cuda" and data["b", "c"].is_cuda
    assert torch.equal((data + 1)["a"].cpu(), torch.full((3,), 2.0))


def test_x_transformers_train() -> None:
    x_transformers = pytest.importorskip("x_transformers")
    model = x_transformers.TransformerWrapper(
        num_tokens=32, max_seq_len=16, attn_layers=x_transformers.Decoder(dim=16, depth=1, heads=2, attn_flash=True)
    )
    model = x_transformers.AutoregressiveWrapper(model).cuda()
    model(torch.randint(32, (2, 8), device="cuda")).backward()
    assert model.generate(torch.zeros(1, 1, dtype=torch.long, device="cuda"), 3).shape == (1, 3)


def test_vector_quantize_pytorch_quantizes() -> None:
    library = pytest.importorskip("vector_quantize_pytorch")
    quantizer = library.VectorQuantize(dim=8, codebook_size=16, kmeans_init=True, kmeans_iters=2).cuda()
    quantized, indices, loss = quantizer(torch.randn(1, 32, 8, device="cuda"))
    assert quantized.is_cuda and indices.max() < 16 and loss.is_cuda


def test_ema_pytorch_averages() -> None:
    library = pytest.importorskip("ema_pytorch")
    model = network().cuda()
    average = library.EMA(model, beta=0.9, update_after_step=0, update_every=1).cuda()
    with torch.no_grad():
        for each in model.parameters():
            each.add_(1)
    average.update()
    assert average(torch.randn(2, 8, device="cuda")).is_cuda


def test_pytorch_metric_learning_mines() -> None:
    pytest.importorskip("pytorch_metric_learning")
    from pytorch_metric_learning import losses, miners

    embeddings = torch.randn(8, 4, device="cuda", requires_grad=True)
    labels = torch.arange(8, device="cuda") // 2
    loss = losses.TripletMarginLoss()(embeddings, labels, miners.MultiSimilarityMiner()(embeddings, labels))
    loss.backward()
    assert embeddings.grad is not None and embeddings.grad.is_cuda


def test_zuko_flows() -> None:
    zuko = pytest.importorskip("zuko")
    flow = zuko.flows.NSF(features=2, context=1, transforms=2, hidden_features=(8,)).cuda()
    condition = torch.randn(4, 1, device="cuda")
    (-flow(condition).log_prob(torch.randn(4, 2, device="cuda")).mean()).backward()
    assert flow(condition).sample().is_cuda


def test_torchinfo_summarizes() -> None:
    torchinfo = pytest.importorskip("torchinfo")
    summary = torchinfo.summary(network(), (2, 8), device="cuda", verbose=0)
    assert summary.total_params == 8 * 16 + 16 + 16 * 2 + 2


def test_safetensors_load_to_the_device(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    file = tmp_path / "weights.safetensors"
    safetensors.save_file({"weight": torch.arange(4.0, device="cuda")}, file)
    weight = safetensors.load_file(file, device="cuda")["weight"]
    assert weight.is_cuda and weight.tolist() == [0, 1, 2, 3]


def test_ignite_trains() -> None:
    engine = pytest.importorskip("ignite.engine")
    model = network().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    trainer = engine.create_supervised_trainer(
        model, optimizer, nn.CrossEntropyLoss(), device="cuda", amp_mode="amp", scaler=True
    )
    state = trainer.run(DataLoader(samples(), batch_size=8), max_epochs=1)
    assert state.iteration == 4 and isinstance(state.output, float)


def test_opacus_trains_in_private() -> None:
    opacus = pytest.importorskip("opacus")
    model = network().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = opacus.PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=optimizer,
        data_loader=DataLoader(samples(), batch_size=8),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs.cuda()), labels.cuda()).backward()
        optimizer.step()
    assert engine.get_epsilon(1e-5) > 0


def test_monai_segments_volumes() -> None:
    pytest.importorskip("monai")
    from monai.inferers import sliding_window_inference
    from monai.losses import DiceCELoss
    from monai.networks.nets import UNet

    model = UNet(3, 1, 2, (4, 8), (2,)).cuda()
    volumes, labels = torch.randn(1, 1, 16, 16, 16).cuda(), torch.randint(2, (1, 1, 16, 16, 16)).cuda()
    scaler = torch.amp.GradScaler("cuda")
    with torch.autocast("cuda"):
        loss = DiceCELoss(to_onehot_y=True, softmax=True)(model(volumes), labels)
    scaler.scale(loss).backward()
    scaler.step(torch.optim.AdamW(model.parameters()))
    with torch.no_grad():
        assert sliding_window_inference(volumes, (8, 8, 8), 2, model, overlap=0.25).is_cuda


def test_e3nn_is_equivariant() -> None:
    o3 = pytest.importorskip("e3nn.o3")
    product = o3.FullyConnectedTensorProduct("0e+1o", "2x0e", "2x0e+1x1o").cuda()
    directions, scalars = torch.randn(4, 3).cuda(), torch.randn(4, 2).cuda()
    out = product(o3.spherical_harmonics("0e+1o", directions, normalize=True), scalars)
    out.sum().backward()
    mirrored = product(o3.spherical_harmonics("0e+1o", -directions, normalize=True), scalars)
    torch.testing.assert_close(mirrored[:, :2], out[:, :2])
    torch.testing.assert_close(mirrored[:, 2:], -out[:, 2:])


@pytest.mark.parametrize("half", [False, True])
def test_whisper_decodes(half: bool) -> None:
    whisper = pytest.importorskip("whisper")
    from whisper.model import ModelDimensions, Whisper

    model = Whisper(ModelDimensions(80, 1500, 16, 2, 1, 51865, 32, 16, 2, 1)).cuda().eval()
    nn.init.normal_(model.decoder.positional_embedding)
    sound = whisper.log_mel_spectrogram(whisper.pad_or_trim(torch.randn(16000)), 80, device="cuda")
    options = whisper.DecodingOptions(fp16=half, sample_len=2, language="en", temperature=0.5)
    assert len(whisper.decode(model, sound, options).tokens) <= 2


def test_open_clip_compares_images_with_text() -> None:
    pytest.importorskip("open_clip")
    from open_clip.loss import ClipLoss
    from open_clip.model import CLIP, CLIPTextCfg, CLIPVisionCfg

    vision = CLIPVisionCfg(layers=1, width=64, patch_size=16, image_size=32)
    model = CLIP(32, vision, CLIPTextCfg(context_length=16, vocab_size=64, width=32, heads=2, layers=1)).cuda()
    with torch.autocast("cuda"):
        images, text, scale = model(torch.randn(4, 3, 32, 32).cuda(), torch.randint(64, (4, 16)).cuda())[:3]
    ClipLoss()(images.float(), text.float(), scale).backward()
    assert model.visual.conv1.weight.grad.is_cuda


@pytest.mark.parametrize("loss", ["BarlowTwinsLoss", "NTXentLoss", "VICRegLoss"])
def test_lightly_compares_views(loss: str) -> None:
    losses = pytest.importorskip("lightly.loss")
    first, second = torch.randn(2, 8, 16, device="cuda", requires_grad=True).unbind()
    value = getattr(losses, loss)().cuda()(first, second)
    value.backward()
    assert value.is_cuda and value.isfinite()


def test_torchao_quantizes() -> None:
    quantization = pytest.importorskip("torchao.quantization")
    model = network().cuda()
    inputs = torch.randn(4, 8, device="cuda")
    expected = model(inputs)
    quantization.quantize_(model, quantization.Int8WeightOnlyConfig())
    torch.testing.assert_close(model(inputs), expected, rtol=0.1, atol=0.05)


def test_litgpt_generates() -> None:
    litgpt = pytest.importorskip("litgpt")
    from litgpt.generate.base import generate

    size = {"block_size": 32, "vocab_size": 64, "padded_vocab_size": 64, "n_layer": 1, "n_head": 2, "n_embd": 16}
    with torch.device("cuda"):
        model = litgpt.GPT(litgpt.Config(**size, rotary_percentage=1.0)).eval()
    model.max_seq_length = 32
    model.set_kv_cache(1, device=torch.device("cuda"))
    tokens = generate(model, torch.arange(4, device="cuda"), 8, temperature=0.7, top_k=4)
    assert tokens.is_cuda and len(tokens) == 8


def test_pytorch_optimizer_steps() -> None:
    library = pytest.importorskip("pytorch_optimizer")
    inputs = torch.ones(2, 8, device="cuda")
    for name in ("adabelief", "adan", "came", "lamb", "lion", "ranger21", "schedulefreeadamw", "soap"):
        model = nn.Linear(8, 8, bias=False).cuda()
        optimizer = library.load_optimizer(name)(model.parameters(), **({"num_iterations": 4} if "21" in name else {}))
        before = model.weight.detach().clone()
        for _ in range(3):
            model(inputs).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        assert model.weight.isfinite().all() and not torch.equal(model.weight, before), name


def test_denoising_diffusion_pytorch_samples() -> None:
    library = pytest.importorskip("denoising_diffusion_pytorch")
    model = library.Unet(dim=8, dim_mults=(1, 2), flash_attn=True)
    diffusion = library.GaussianDiffusion(model, image_size=8, timesteps=4, sampling_timesteps=2).cuda()
    diffusion(torch.rand(1, 3, 8, 8).cuda()).backward()
    assert diffusion.sample(batch_size=1).is_cuda


def test_neuraloperator_learns_in_frequencies() -> None:
    models = pytest.importorskip("neuralop.models")
    model = models.FNO(n_modes=(4, 4), hidden_channels=4, in_channels=1, out_channels=1).cuda()
    model(torch.randn(1, 1, 8, 8).cuda()).square().mean().backward()
    assert all(each.grad is not None and each.grad.is_cuda for each in model.parameters())


def test_torchsde_integrates() -> None:
    torchsde = pytest.importorskip("torchsde")

    class Equation(nn.Module):
        noise_type, sde_type = "diagonal", "ito"

        def __init__(self) -> None:
            super().__init__()
            self.drift = nn.Linear(3, 3)

        def f(self, time: torch.Tensor, y: torch.Tensor) -> Any:
            return self.drift(y)

        def g(self, time: torch.Tensor, y: torch.Tensor) -> Any:
            return torch.full_like(y, 0.1)

    equation = Equation().cuda()
    times = torch.linspace(0, 1, 3, device="cuda")
    torchsde.sdeint_adjoint(equation, torch.ones(2, 3, device="cuda"), times, dt=0.25).sum().backward()
    assert equation.drift.weight.grad is not None and equation.drift.weight.grad.isfinite().all()


def test_sbi_infers_parameters() -> None:
    inference = pytest.importorskip("sbi.inference")
    from sbi.utils import BoxUniform

    prior = BoxUniform(-torch.ones(2), torch.ones(2), device="cuda")
    parameters = prior.sample((64,))
    estimator = inference.NPE(prior, device="cuda", show_progress_bars=False)
    observed = parameters + 0.1 * torch.randn_like(parameters)
    estimator.append_simulations(parameters, observed).train(max_num_epochs=1)
    assert estimator.build_posterior().sample((4,), x=observed[:1], show_progress_bars=False).is_cuda


@pytest.mark.parametrize("attack", ["FGSM", "PGD", "CW", "DeepFool"])
def test_torchattacks_find_adversaries(attack: str) -> None:
    library = pytest.importorskip("torchattacks")
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 4)).cuda().eval()
    images, labels = torch.rand(2, 3, 2, 2).cuda(), torch.tensor([0, 1]).cuda()
    adversaries = getattr(library, attack)(model)(images, labels)
    assert adversaries.is_cuda and adversaries.shape == images.shape


def test_piq_compares_images() -> None:
    piq = pytest.importorskip("piq")
    first, second = torch.rand(2, 1, 3, 32, 32).cuda()
    for measure in (piq.ssim, piq.psnr, piq.fsim, piq.gmsd, piq.haarpsi, piq.mdsi):
        expected = measure(first.cpu(), second.cpu(), data_range=1.0)
        torch.testing.assert_close(measure(first, second, data_range=1.0).cpu(), expected, rtol=1e-3, atol=1e-4)


def test_nflows_transform() -> None:
    transforms = pytest.importorskip("nflows.transforms")
    from nflows.distributions import StandardNormal
    from nflows.flows import Flow

    flow = Flow(transforms.MaskedAffineAutoregressiveTransform(2, 8), StandardNormal([2])).cuda()
    (-flow.log_prob(torch.randn(4, 2).cuda()).mean()).backward()
    assert flow.sample(3).is_cuda


def test_torchrl_improves_a_policy() -> None:
    pytest.importorskip("torchrl")
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule
    from torchrl.modules import MLP, NormalParamExtractor, ProbabilisticActor, TanhNormal, ValueOperator
    from torchrl.objectives import ClipPPOLoss
    from torchrl.objectives.value import GAE

    policy = nn.Sequential(MLP(in_features=4, out_features=4, num_cells=[8]), NormalParamExtractor())
    actor = ProbabilisticActor(
        TensorDictModule(policy, in_keys=["observation"], out_keys=["loc", "scale"]),
        in_keys=["loc", "scale"],
        distribution_class=TanhNormal,
        return_log_prob=True,
    ).cuda()
    value = ValueOperator(MLP(in_features=4, out_features=1, num_cells=[8]), in_keys=["observation"]).cuda()
    none = torch.zeros(2, 5, 1, dtype=torch.bool)
    later = {"observation": torch.randn(2, 5, 4), "reward": torch.randn(2, 5, 1), "done": none, "terminated": none}
    steps = TensorDict({"observation": torch.randn(2, 5, 4), "next": later}, [2, 5]).cuda()
    with torch.no_grad():
        steps = actor(steps)
    GAE(gamma=0.99, lmbda=0.95, value_network=value)(steps)
    losses = ClipPPOLoss(actor, value)(steps.reshape(-1))
    (losses["loss_objective"] + losses["loss_critic"]).backward()
    assert all(each.grad is not None and each.grad.is_cuda for each in actor.parameters())
