"""Trainers and networks of libraries that say "cuda": each function is what a user of one writes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from child_processes import run_python
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

pytestmark = pytest.mark.full


def test_timm_trains_a_network() -> None:
    timm = pytest.importorskip("timm", exc_type=ImportError)
    optim = pytest.importorskip("timm.optim", exc_type=ImportError)
    utils = pytest.importorskip("timm.utils", exc_type=ImportError)
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=1, num_classes=3).to("cuda")
    scaler = torch.amp.GradScaler("cuda")
    optimizer = optim.create_optimizer_v2(model, opt="adamw", lr=1e-3)
    images = torch.randn(2, 3, 32, 32, device="cuda")
    with torch.autocast("cuda", torch.float16):
        loss = nn.functional.cross_entropy(model(images), torch.tensor([0, 2], device="cuda"))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert loss.is_cuda and torch.isfinite(loss)
    average = utils.ModelEmaV3(model)
    average.update(model)


def test_lpips_compares_images() -> None:
    lpips = pytest.importorskip("lpips", exc_type=ImportError)
    distance = lpips.LPIPS(net="squeeze", pretrained=False, pnet_rand=True, verbose=False).cuda()
    image = torch.rand(1, 3, 64, 64, device="cuda")
    assert distance(image, image).item() == pytest.approx(0, abs=1e-6) and distance(image, 1 - image).is_cuda


def test_segmentation_models_segment() -> None:
    models = pytest.importorskip("segmentation_models_pytorch", exc_type=ImportError)
    model = models.Unet("resnet18", encoder_weights=None, classes=2).cuda()
    masks = model(torch.randn(2, 3, 32, 32, device="cuda"))
    loss = models.losses.DiceLoss("multiclass")(masks, torch.randint(2, (2, 32, 32), device="cuda"))
    loss.backward()
    assert masks.shape == (2, 2, 32, 32) and loss.is_cuda


def test_ultralytics_detects() -> None:
    ultralytics = pytest.importorskip("ultralytics", exc_type=ImportError)
    model = ultralytics.YOLO("yolov8n.yaml", verbose=False)
    model.to("cuda")
    out = model.model.eval()(torch.rand(1, 3, 64, 64, device="cuda"))
    assert out[0].is_cuda and out[0].shape[:2] == (1, 84)
    assert ultralytics.utils.torch_utils.select_device("0", verbose=False) == torch.device("cuda:0")


def test_fastai_learns() -> None:
    basics = pytest.importorskip("fastai.basics", exc_type=ImportError)
    pytest.importorskip("fastai.callback.fp16")
    data = TensorDataset(torch.randn(32, 8), torch.randint(2, (32,)))
    loaders = basics.DataLoaders(basics.DataLoader(data, bs=8), basics.DataLoader(data, bs=8), device="cuda")
    learner = basics.Learner(loaders, nn.Linear(8, 2), loss_func=nn.CrossEntropyLoss(), opt_func=basics.Adam)
    learner = learner.to_fp16()
    with learner.no_bar(), learner.no_logging():
        learner.fit(1)
    assert next(learner.model.parameters()).is_cuda


def test_keras_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    keras = pytest.importorskip("keras")
    model = keras.Sequential(
        [keras.layers.Input((8,)), keras.layers.Dense(4, activation="relu"), keras.layers.Dense(1)]
    )
    model.compile(optimizer="adam", loss="mse")
    history = model.fit(torch.randn(32, 8).numpy(), torch.randn(32, 1).numpy(), epochs=1, verbose=0)
    assert len(history.history["loss"]) == 1
    assert all(each.value.is_cuda for each in model.trainable_variables)


def test_stable_baselines3_learns() -> None:
    baselines = pytest.importorskip("stable_baselines3")
    model = baselines.PPO("MlpPolicy", "CartPole-v1", n_steps=16, batch_size=16, n_epochs=1, device="cuda")
    assert model.device.type == "cuda"
    model.learn(16)
    assert baselines.common.utils.get_device("auto").type == "cuda"


FINE_TUNING = """
import sys, datasets, tokenizers, transformers, trl
words = {"<pad>": 0, "<end>": 1, "a": 2, "b": 3, "c": 4}
tokenizer = transformers.PreTrainedTokenizerFast(
    tokenizer_object=tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<pad>")),
    pad_token="<pad>",
    eos_token="<end>",
)
tokenizer.backend_tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
sizes = dict(n_layer=1, n_head=2, n_embd=16, vocab_size=8, n_positions=16, bos_token_id=1, eos_token_id=1)
settings = trl.SFTConfig(
    output_dir=sys.argv[1], max_steps=2, per_device_train_batch_size=2, fp16=True, bf16=False, report_to=[],
    max_length=8, save_strategy="no",
)
trainer = trl.SFTTrainer(
    transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)),
    settings,
    train_dataset=datasets.Dataset.from_dict({"text": ["a b c", "b c a", "c a b", "a a b"]}),
    processing_class=tokenizer,
)
print(trainer.args.device, trainer.train().global_step)
"""


def test_trl_fine_tunes(tmp_path: Path) -> None:
    pytest.importorskip("trl", exc_type=ImportError)
    # It refuses two devices in one process.
    result = run_python("-c", FINE_TUNING, tmp_path, CUDA_VISIBLE_DEVICES="0")
    assert result.stdout.splitlines()[-1:] == ["cuda:0 2"], result.stderr


def test_sentence_transformers_embed(tmp_path: Path) -> None:
    library = pytest.importorskip("sentence_transformers", exc_type=ImportError)
    transformers = pytest.importorskip("transformers")
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "red", "blue"]))
    transformers.BertTokenizer(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    transformers.BertModel(
        transformers.BertConfig(
            vocab_size=7, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
        )
    ).save_pretrained(tmp_path)
    model = library.SentenceTransformer(str(tmp_path), device="cuda")
    embeddings = model.encode(["red", "blue red"], convert_to_tensor=True, show_progress_bar=False)
    assert embeddings.is_cuda and embeddings.shape == (2, 16)


def test_torchvision_transforms_and_classifies() -> None:
    torchvision = pytest.importorskip("torchvision", exc_type=ImportError)
    images = torch.randint(0, 256, (2, 3, 40, 40), dtype=torch.uint8, device="cuda")
    transforms = torchvision.transforms.v2
    prepared = transforms.Compose([transforms.RandomCrop(32), transforms.ToDtype(torch.float32, scale=True)])(images)
    model = torchvision.models.resnet18(num_classes=3).cuda()
    model(prepared).sum().backward()
    assert prepared.is_cuda and model.fc.weight.grad.is_cuda


def test_lightning_fabric_trains() -> None:
    lightning = pytest.importorskip("lightning")
    fabric = lightning.Fabric(accelerator="cuda", devices=1, precision="bf16-mixed")
    module = nn.Linear(8, 2)
    model, optimizer = fabric.setup(module, torch.optim.SGD(module.parameters(), lr=0.1))
    loader = fabric.setup_dataloaders(DataLoader(TensorDataset(torch.randn(8, 8)), batch_size=4))
    for (inputs,) in loader:
        assert inputs.is_cuda
        fabric.backward(model(inputs).square().mean())
        optimizer.step()
