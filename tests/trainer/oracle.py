"""The same training in Python: torch.nn, DistributedDataParallel over gloo, torch.optim. Every rank is a process."""

import gzip
import os
import struct

import numpy
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import deepspeed_reference
from spawn import DATA, held_port


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


def read_idx(name):
    with gzip.open(os.path.join(DATA, name + ".gz")) as file:
        content = file.read()
    dims = struct.unpack(">%dI" % content[3], content[4:4 + 4 * content[3]])
    return torch.from_numpy(numpy.frombuffer(content, numpy.uint8, offset=4 + 4 * len(dims)).reshape(dims).copy())


def read_split(prefix):
    images = read_idx(prefix + "-images-idx3-ubyte").unsqueeze(1).float() / 255
    return TensorDataset(images, read_idx(prefix + "-labels-idx1-ubyte").long())


def make_optimizer(config, parameters):
    """DeepSpeed's meaning: Adam is AdamW unless adam_w_mode is false, and decays nothing by default."""
    params = dict(config.get("params", {}))
    kinds = {"Adam": torch.optim.AdamW if params.pop("adam_w_mode", True) else torch.optim.Adam,
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


def train(rank, world, recipe, dataset, test_set):
    """Returns rank 0's (global loss, gradient norm, learning rate) of each step and the number of correct test
    predictions."""
    run, engine = recipe["run"], recipe["engine"]
    accumulation = engine.get("gradient_accumulation_steps", 1)
    micro = engine["train_batch_size"] // accumulation // world
    torch.manual_seed(run["seed"])
    model = DistributedDataParallel({"mlp": Mlp, "cnn": Cnn}[recipe["model"]["type"]]())
    optimizer = make_optimizer(engine["optimizer"], model.parameters())
    scheduler = make_scheduler(engine["scheduler"], optimizer) if "scheduler" in engine else None
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
        local = 0.0
        for part in range(accumulation):
            images, labels = next(stream)
            model.require_backward_grad_sync = part == accumulation - 1
            loss = cross_entropy(model(images), labels)
            (loss / accumulation).backward()
            local += loss.item() / accumulation
        clip = engine.get("gradient_clipping", 1.0)
        norm = nn.utils.clip_grad_norm_(model.parameters(), clip or float("inf")).item()
        lr = optimizer.param_groups[0]["lr"]
        optimizer.step()
        optimizer.zero_grad()
        if scheduler:
            scheduler.step()
        mean = torch.tensor([local], dtype=torch.float64)
        dist.all_reduce(mean)
        steps.append((mean.item() / world, norm, lr))
    with torch.no_grad():
        images, labels = test_set.tensors
        correct = (model.module(images).argmax(1) == labels).sum().item()
    return steps, correct


def _rank_main(rank, world, port, recipes, queue):
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:%d" % port, rank=rank, world_size=world)
    dataset, test_set = read_split("train"), read_split("t10k")
    for recipe in recipes:
        result = train(rank, world, recipe, dataset, test_set)
        if rank == 0:
            queue.put(result)
    dist.barrier()
    dist.destroy_process_group()


def run(recipes, world):
    """Trains all recipes, one after the other, in one set of processes."""
    holder, port = held_port()
    context = mp.get_context("spawn")
    queue = context.Queue()
    processes = [context.Process(target=_rank_main, args=(rank, world, port, recipes, queue), daemon=True)
                 for rank in range(world)]
    for process in processes:
        process.start()
    results = [queue.get(timeout=120) for _ in recipes]
    for process in processes:
        process.join(60)
        assert process.exitcode == 0, process.exitcode
    holder.close()
    return results
