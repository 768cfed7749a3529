"""Runs the same training in plain PyTorch; every rank is a process, over gloo.

In fp32 it uses DistributedDataParallel. With a 16-bit model, gradients accumulate in fp32 over the micro-batches and
are exchanged in the model's dtype, and torch.optim updates fp32 weights that are copied to the model."""

import os
import struct
from queue import Empty

import numpy
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import load_file
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import deepspeed_reference
from gpt2 import Gpt2
from inputs import open_idx
from spawn import DATA, held_port

# The default of `dslaunch train` if the configuration has no optimizer.
DEFAULT_OPTIMIZER = {"type": "AdamW"}


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3)
        self.conv2 = nn.Conv2d(8, 16, 3)
        self.fc1 = nn.Linear(400, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = nn.functional.max_pool2d(torch.relu(self.conv2(x)), 2)
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


def make_model(recipe):
    torch.manual_seed(recipe["run"]["seed"])
    config = recipe["model"]
    model = Gpt2(config) if config["type"] == "gpt2" else {"mlp": Mlp, "cnn": Cnn}[config["type"]]()
    if "init_weights" in recipe["run"]:
        model.load_state_dict(load_file(recipe["run"]["init_weights"]))
    return model


def read_idx(name, folder=DATA):
    with open_idx(folder, name) as file:
        content = file.read()
    dims = struct.unpack(">%dI" % content[3], content[4:4 + 4 * content[3]])
    return torch.from_numpy(numpy.frombuffer(content, numpy.uint8, offset=4 + 4 * len(dims)).reshape(dims).copy())


def read_images(folder, prefix):
    images = read_idx(prefix + "-images-idx3-ubyte", folder).unsqueeze(1).float() / 255
    return TensorDataset(images, read_idx(prefix + "-labels-idx1-ubyte", folder).long())


def read_text(file, block):
    """Returns the data set of a text. Tokens are bytes; blocks do not overlap, and each token's target is the next
    token."""
    tokens = torch.from_numpy(numpy.fromfile(file, numpy.uint8)).long()
    size = (len(tokens) - 1) // block * block
    return TensorDataset(tokens[:size].view(-1, block), tokens[1:size + 1].view(-1, block))


class Data:
    """Reads the data that recipes name, each only once."""

    def __init__(self):
        self.read = {}

    def splits(self, recipe):
        """Returns the training set, and the test set or None."""
        data = recipe["data"]
        block = data.get("block_size") or recipe["model"].get("n_positions")
        key = data["type"], data["path"], block
        if key not in self.read:
            self.read[key] = ((read_text(data["path"], block), None) if data["type"] == "text" else
                              (read_images(data["path"], "train"), read_images(data["path"], "t10k")))
        return self.read[key]


def make_optimizer(config, parameters, dtype):
    """Makes the optimizer as DeepSpeed does: Adam is AdamW unless adam_w_mode is false, and has no weight decay by
    default.

    PyTorch's Adam and its fused kernel, which the trainer uses, differ in the last bit of fp32. Weights that are
    rounded to
    16 bit may then differ in their last bit, so for such models the oracle uses the fused kernel too."""
    params = dict(config.get("params", {}))
    if dtype != torch.float32 and config["type"] in ("Adam", "AdamW"):
        params["fused"] = True
    kinds = {"Adam": torch.optim.AdamW if params.pop("adam_w_mode", True) else torch.optim.Adam,
             "AdamW": torch.optim.AdamW,
             "SGD": torch.optim.SGD, "Adagrad": torch.optim.Adagrad, "RMSprop": torch.optim.RMSprop,
             "Lamb": deepspeed_reference.Lamb, "Lion": deepspeed_reference.Lion}
    return kinds[config["type"]](parameters, **{"weight_decay": 0, **params})


def make_scheduler(config, optimizer):
    params = config.get("params", {})
    formula = deepspeed_reference.SCHEDULES.get(config["type"])
    if formula is None:
        return getattr(lr_scheduler, config["type"])(optimizer, **params)
    base = optimizer.param_groups[0]["lr"]
    return lr_scheduler.LambdaLR(optimizer, lambda updates: formula(updates - 1, base, **params) / base)


def model_dtype(engine):
    for key, dtype in (("fp16", torch.float16), ("bf16", torch.bfloat16)):
        if engine.get(key, {}).get("enabled"):
            return dtype
    return torch.float32


def make_scaler(engine):
    keys = dict(engine.get("fp16", {}))
    if not keys.pop("enabled", False):
        return None
    assert keys.pop("loss_scale", 0) == 0, "only the dynamic scaler is here"
    return deepspeed_reference.LossScaler(**keys)


class FullPrecision:
    """Trains in fp32; DistributedDataParallel averages the gradients."""

    def __init__(self, model):
        self.wrapped = DistributedDataParallel(model)
        self.masters = list(model.parameters())

    def forward(self, inputs, last):
        self.wrapped.require_backward_grad_sync = last
        return self.wrapped(inputs)

    def after_backward(self):
        pass

    def average(self, scale):
        pass

    def copy_back(self):
        for parameter in self.masters:
            parameter.grad = None


class HalfPrecision:
    """Trains in 16 bit, with gradients and weights in fp32 beside the model's.

    Gradients of one micro-batch are exchanged in 16 bit, summed in fp32 and rounded once. Gradients of several
    micro-batches, which were accumulated in fp32, are not rounded."""

    def __init__(self, model, dtype, world, accumulation):
        self.model, self.world = model.to(dtype), world
        self.dtype, self.rounds = dtype, world > 1 and accumulation == 1
        self.parameters = list(model.parameters())
        self.masters = [nn.Parameter(parameter.detach().float()) for parameter in self.parameters]
        self.sums = [torch.zeros_like(master) for master in self.masters]

    def forward(self, inputs, last):
        return self.model(inputs.to(self.dtype) if inputs.is_floating_point() else inputs)

    def after_backward(self):
        for total, parameter in zip(self.sums, self.parameters):
            total += parameter.grad
            parameter.grad = None

    def average(self, scale):
        message = torch.cat([total.flatten() for total in self.sums])
        if self.rounds:
            message = message.to(self.dtype).float()
        if self.world > 1:
            dist.all_reduce(message)
        if self.rounds:
            message = message.to(self.dtype).float()
        whole = message / self.world / scale
        for master, part in zip(self.masters, whole.split([total.numel() for total in self.sums])):
            master.grad = part.view_as(master)
        for total in self.sums:
            total.zero_()

    @torch.no_grad()
    def copy_back(self):
        for master, parameter in zip(self.masters, self.parameters):
            parameter.copy_(master)


def train(rank, world, recipe, data):
    """Trains on one rank. Returns rank 0's {loss (global), grad_norm, lr, loss_scale, skipped} of each step and, for
    images, the number of correct test predictions."""
    run, engine = recipe["run"], recipe["engine"]
    accumulation = engine.get("gradient_accumulation_steps", 1)
    micro = engine["train_batch_size"] // accumulation // world
    model, dtype = make_model(recipe), model_dtype(engine)
    trained = FullPrecision(model) if dtype == torch.float32 else HalfPrecision(model, dtype, world, accumulation)
    scaler = make_scaler(engine)
    optimizer = make_optimizer(engine.get("optimizer", DEFAULT_OPTIMIZER), trained.masters, dtype)
    scheduler = make_scheduler(engine["scheduler"], optimizer) if "scheduler" in engine else None
    dataset, test_set = data.splits(recipe)
    sampler = DistributedSampler(dataset, world, rank, recipe["data"].get("shuffle", True), run["seed"])
    loader = DataLoader(dataset, micro, sampler=sampler)

    def batches():
        epoch = 0
        while True:
            sampler.set_epoch(epoch)
            yield from loader
            epoch += 1

    stream, steps = batches(), []
    for _ in range(run["steps"]):
        local, scale = 0.0, scaler.scale if scaler else 1.0
        for part in range(accumulation):
            inputs, targets = next(stream)
            logits = trained.forward(inputs, part == accumulation - 1)
            loss = cross_entropy(logits.float().flatten(0, -2), targets.flatten())
            (loss * scale / accumulation).backward()
            trained.after_backward()
            local += loss.item() / accumulation
        trained.average(scale)
        norm = nn.utils.clip_grad_norm_(trained.masters, engine.get("gradient_clipping", 1.0) or float("inf")).item()
        lr = optimizer.param_groups[0]["lr"]
        overflow = scaler is not None and not numpy.isfinite(norm)
        if scaler:
            assert not scaler.update(overflow), "DeepSpeed would give up"
        if not overflow:
            optimizer.step()
            if scheduler:
                scheduler.step()
        trained.copy_back()
        mean = torch.tensor([local], dtype=torch.float64)
        dist.all_reduce(mean)
        steps.append({"loss": mean.item() / world, "grad_norm": norm, "lr": lr, "loss_scale": scale, "skipped": overflow})
    correct = None
    if test_set and dtype == torch.float32:
        with torch.no_grad():
            images, labels = test_set.tensors
            correct = (model(images).argmax(1) == labels).sum().item()
    return steps, correct


def _rank_main(rank, world, port, recipes, queue):
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:%d" % port, rank=rank, world_size=world)
    data = Data()
    for recipe in recipes:
        result = train(rank, world, recipe, data)
        if rank == 0:
            queue.put(result)
    dist.barrier()
    dist.destroy_process_group()


def run(recipes, world):
    """Trains all recipes in sequence in one set of processes, and returns rank 0's results of each."""
    holder, port = held_port()
    # The ranks are forked from a process that has only imported PyTorch, because an import takes 2 s of a core. An
    # optimizer's first step imports torch._dynamo, so it is preloaded too.
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(["numpy", "torch", "torch.distributed", "torch._dynamo", "safetensors.torch"])
    queue = context.Queue()
    processes = [context.Process(target=_rank_main, args=(rank, world, port, recipes, queue), daemon=True)
                 for rank in range(world)]
    for process in processes:
        process.start()
    results = []
    while len(results) < len(recipes):
        try:
            results.append(queue.get(timeout=1))
        except Empty:
            assert all(process.exitcode in (None, 0) for process in processes), "the oracle failed; its output is above"
    for process in processes:
        process.join(60)
        assert process.exitcode == 0, process.exitcode
    holder.close()
    return results
