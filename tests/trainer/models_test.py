"""Tests that the models compute the same as those of PyTorch and transformers, and that both read each other's
weight files."""

import json
import math
import os
import tempfile
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"

import safetensors.torch
import torch
import transformers
from torch import nn

from oracle import Cnn, Mlp
from spawn import start_once

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

TRACE = os.environ["DSLAUNCH_MODEL_TRACE"]
GPT2 = {"type": "gpt2", "vocab_size": 61, "n_positions": 16, "n_embd": 24, "n_layer": 3, "n_head": 4, "n_inner": None,
        "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
TOKENS = torch.randint(0, 61, (3, 16), generator=torch.Generator().manual_seed(5))
TARGETS = torch.randint(0, 61, (48,), generator=torch.Generator().manual_seed(6))


def trace(**question):
    done = start_once.run([TRACE], input=json.dumps(question) + "\n")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def trace_gpt2(model=None, **more):
    return trace(model={**GPT2, **(model or {})}, input_shape=[16], seed=3, tokens=TOKENS.tolist(),
                 targets=TARGETS.tolist(), **more)


def make_gpt2(**changes):
    torch.manual_seed(9)
    sizes = {key: value for key, value in GPT2.items() if key != "type"}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        **{**sizes, **changes}, bos_token_id=None, eos_token_id=None))
    # The initial values are changed, because with them swapped biases and norms would not be detected.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


class TorchvisionBlock(nn.Module):
    def __init__(self, inplanes, planes, stride, downsample):
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = downsample

    def forward(self, x):
        out = torch.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return torch.relu(out + (x if self.downsample is None else self.downsample(x)))


class TorchvisionResnet18(nn.Module):
    """Creates and initialises layers in torchvision's order, without needing torchvision."""

    def __init__(self, channels, classes, small):
        super().__init__()
        self.conv1 = (nn.Conv2d(channels, 64, 3, 1, 1, bias=False) if small
                      else nn.Conv2d(channels, 64, 7, 2, 3, bias=False))
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, 2, 1)
        self.layer1, self.layer2 = self.stage(64, 64, 1), self.stage(64, 128, 2)
        self.layer3, self.layer4 = self.stage(128, 256, 2), self.stage(256, 512, 2)
        self.fc = nn.Linear(512, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    @staticmethod
    def stage(inplanes, planes, stride):
        downsample = None
        if stride != 1:
            downsample = nn.Sequential(nn.Conv2d(inplanes, planes, 1, stride, bias=False), nn.BatchNorm2d(planes))
        return nn.Sequential(TorchvisionBlock(inplanes, planes, stride, downsample),
                             TorchvisionBlock(planes, planes, 1, None))

    def forward(self, x):
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


class ModelTest(unittest.TestCase):
    def close(self, got, expected, relative, what):
        self.assertLessEqual(abs(got - expected), relative * max(abs(expected), 1e-6), "%s: %r, not %r" % (
            what, got, expected))

    def check(self, answer, model, inputs, targets):
        """Checks that the model has the same weights and computes the same logits, loss and gradients."""
        self.assertNotIn("error", answer)
        expected = {name: tensor for name, tensor in model.state_dict().items() if name != "lm_head.weight"}
        self.assertEqual(answer["state"], {name: list(tensor.shape) for name, tensor in expected.items()})
        for name, tensor in expected.items():
            self.close(answer["sums"][name], tensor.double().square().sum().item(), 1e-12, name)

        def logits(x):
            out = model(x)
            return getattr(out, "logits", out)

        def check_logits(got):
            model.eval()
            with torch.no_grad():
                wanted = logits(inputs).flatten()
            difference = (torch.tensor(got) - wanted).abs().max().item()
            self.assertLess(difference, 1e-5)  # another gelu or layer_norm_epsilon would give 2e-4

        check_logits(answer["logits"])
        model.train()
        out = logits(inputs)
        loss = nn.functional.cross_entropy(out.flatten(0, -2), targets)
        loss.backward()
        self.close(answer["loss"], loss.item(), 1e-6, "loss")
        for name, parameter in model.named_parameters():
            self.close(answer["gradients"][name], parameter.grad.double().square().sum().item(), 1e-5, name)
        check_logits(answer["logits_after"])

    def check_images(self, model_section, model_of_seed, shape, batch):
        targets = torch.arange(batch) % 10
        answer = trace(model={"num_classes": 10, **model_section}, input_shape=shape, seed=3, batch=batch,
                       targets=targets.tolist())
        torch.manual_seed(3)
        model = model_of_seed()
        torch.manual_seed(1)
        self.check(answer, model, torch.rand(batch, *shape), targets)

    def test_mlp_matches_pytorch(self):
        self.check_images({"type": "mlp", "hidden_size": 128}, Mlp, [1, 28, 28], 5)

    def test_cnn_matches_pytorch(self):
        self.check_images({"type": "cnn", "hidden_size": 128}, Cnn, [1, 28, 28], 5)

    def test_resnet18_matches_torchvision_on_small_images(self):
        self.check_images({"type": "resnet18"}, lambda: TorchvisionResnet18(3, 10, True), [3, 32, 32], 3)

    def test_resnet18_matches_torchvision_on_large_images(self):
        self.check_images({"type": "resnet18"}, lambda: TorchvisionResnet18(3, 10, False), [3, 96, 65], 3)

    def test_gpt2_draws_matrices_once_in_order(self):
        model = make_gpt2()
        torch.manual_seed(3)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.dim() == 2:
                    parameter.normal_(0, 0.02 / (math.sqrt(2 * 3) if name.endswith("c_proj.weight") else 1))
                else:
                    parameter.fill_(1 if ".ln_" in name and name.endswith("weight") else 0)
        self.check(trace_gpt2(), model, TOKENS, TARGETS)

    def test_loads_gpt2_of_transformers(self):
        for changes, arguments in [({}, {}), ({"n_inner": 40}, {}), ({}, {"max_shard_size": "20KB"})]:
            with self.subTest(changes=changes, arguments=arguments), tempfile.TemporaryDirectory() as folder:
                model = make_gpt2(**changes)
                model.save_pretrained(folder, **arguments)
                self.assertEqual(len([f for f in os.listdir(folder) if f.endswith(".safetensors")]) > 1,
                                 "max_shard_size" in arguments)
                self.check(trace_gpt2(changes, weights=folder), model, TOKENS, TARGETS)

    def test_loads_gpt2_in_other_layouts(self):
        """Tests the layouts of the base model and of the files of the first release, and 16-bit weights."""
        model = make_gpt2()
        plain = {name: tensor.clone() for name, tensor in model.transformer.state_dict().items()}
        old = {**plain, "lm_head.weight": plain["wte.weight"].clone()}
        for layer in range(3):
            old["h.%d.attn.bias" % layer] = torch.ones(1, 1, 16, 16).tril()
            old["h.%d.attn.masked_bias" % layer] = torch.tensor(-1e4)
        half = {name: tensor.bfloat16() for name, tensor in plain.items()}
        for name, tensors in [("plain", plain), ("old", old), ("half", half)]:
            with self.subTest(name=name), tempfile.TemporaryDirectory() as folder:
                file = os.path.join(folder, "model.safetensors")
                safetensors.torch.save_file(tensors, file)
                model.transformer.load_state_dict({key: tensors[key].float() for key in plain})
                model.zero_grad()
                self.check(trace_gpt2(weights=file), model, TOKENS, TARGETS)

    def test_transformers_loads_export(self):
        with tempfile.TemporaryDirectory() as outer:
            source, folder = os.path.join(outer, "source"), os.path.join(outer, "made", "here")
            make_gpt2(n_inner=40).save_pretrained(source)
            sections = {"n_inner": 40}
            answer = trace_gpt2(sections, weights=source, export=folder)
            self.assertEqual(sorted(os.listdir(folder)), ["config.json", "model.safetensors"])
            model, report = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
            self.assertFalse(any(report.values()), report)
            self.assertIsInstance(model, transformers.GPT2LMHeadModel)
            self.check(answer, model, TOKENS, TARGETS)
            self.assertEqual(set(safetensors.torch.load_file(os.path.join(folder, "model.safetensors"))),
                             set(safetensors.torch.load_file(os.path.join(source, "model.safetensors"))))
            again = trace_gpt2(sections, weights=folder, export=folder)
            self.assertEqual(again["logits"], answer["logits"])

    def test_exports_other_models_by_module_path(self):
        with tempfile.TemporaryDirectory() as folder:
            question = {"model": {"type": "resnet18", "num_classes": 4}, "input_shape": [1, 8, 8], "batch": 2,
                        "targets": [0, 3]}
            answer = trace(**question, seed=3, export=folder)
            with open(os.path.join(folder, "config.json")) as file:
                self.assertEqual(json.load(file), question["model"])
            tensors = safetensors.torch.load_file(os.path.join(folder, "model.safetensors"))
            model = TorchvisionResnet18(1, 4, True)
            model.load_state_dict(tensors, strict=True)
            torch.manual_seed(1)
            self.check(answer, model, torch.rand(2, 1, 8, 8), torch.tensor([0, 3]))
            self.assertEqual(trace(**question, seed=4, weights=folder)["logits"], answer["logits"])

    def test_rejects_gpt2_that_computes_differently(self):
        for changes, words in [({"n_head": 2}, "n_head is 2; model.n_head is 4"),
                               ({"layer_norm_epsilon": 1e-3}, "layer_norm_epsilon"),
                               ({"activation_function": "relu"}, "activation_function"),
                               ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is true"),
                               ({"n_embd": 32}, "is F32 [96] where the model has F32 [72]"),
                               ({"n_layer": 4}, "tensor transformer.h.3.attn.c_attn.bias is not in the model"),
                               ({"n_layer": 2}, "holds no tensor transformer.h.2.attn.c_attn.bias")]:
            with self.subTest(changes=changes), tempfile.TemporaryDirectory() as folder:
                make_gpt2(**changes).save_pretrained(folder)
                error = trace_gpt2(weights=folder)["error"]
                self.assertIn(words, error)
                self.assertIn(folder, error)

    def test_rejects_untied_head(self):
        with tempfile.TemporaryDirectory() as folder:
            tensors = {name: tensor.clone() for name, tensor in make_gpt2().state_dict().items()}
            tensors["lm_head.weight"] += 1
            safetensors.torch.save_file(tensors, os.path.join(folder, "model.safetensors"))
            self.assertIn("lm_head.weight differs from the embedding", trace_gpt2(weights=folder)["error"])

    def test_dropout_is_off_in_evaluation_and_repeats(self):
        """With dropout, training must have another loss, which repeats with the same seed."""
        dropout = {"resid_pdrop": 0.5, "embd_pdrop": 0.5, "attn_pdrop": 0.5}
        plain, dropped, again = trace_gpt2(), trace_gpt2(dropout), trace_gpt2(dropout)
        self.assertEqual(plain["logits"], dropped["logits"])
        self.assertNotEqual(plain["loss"], dropped["loss"])
        self.assertEqual(dropped["loss"], again["loss"])


if __name__ == "__main__":
    unittest.main()
