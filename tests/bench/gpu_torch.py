"""Trains with the competitors of tests/bench/gpu: `gpu_torch.py prepare|eager|autocast|compile|deepspeed RECIPE
cuda|cpu`.

Prints the same lines as dslaunch-train. DeepSpeed gets RECIPE's engine section as its configuration."""

import copy
import functools
import json
import os
import socket
import sys
import time

import numpy
import torch
from torch.utils.checkpoint import checkpoint

from gpt_training import Gpt2, Llama, loss_of, make_model, prepare


def batches(recipe, device):
    """Yields batches on the device, copied from pinned memory as a data loader does."""
    def there(rows):
        return rows.contiguous().pin_memory().to(device, non_blocking=True) if device == "cuda" else rows.contiguous()

    tokens = numpy.memmap(recipe["data"]["path"], "<u2", "r")
    block, batch = recipe["data"]["block_size"], recipe["engine"]["train_batch_size"]
    for number in range(recipe["run"]["steps"]):
        first = number * batch
        rows = numpy.stack([tokens[(first + i) * block:(first + i + 1) * block + 1] for i in range(batch)])
        rows = torch.from_numpy(rows.astype(numpy.int64))
        yield there(rows[:, :-1]), there(rows[:, 1:])


class Masters:
    """Holds bf16 weights, and the fp32 copies that are updated."""

    def __init__(self, model):
        self.weights = list(model.bfloat16().parameters())
        self.masters = [weight.detach().float() for weight in self.weights]

    def gradients(self):
        for master, weight in zip(self.masters, self.weights):
            master.grad = torch.empty_like(master) if master.grad is None else master.grad
        torch._foreach_copy_([master.grad for master in self.masters], [weight.grad for weight in self.weights])
        for weight in self.weights:
            weight.grad = None

    def publish(self):
        with torch.no_grad():
            torch._foreach_copy_(self.weights, self.masters)


def torch_step(kind, recipe, device):
    """Returns a function that makes a step for inputs and targets and returns the loss."""
    model = make_model(recipe, Llama).to(device)
    masters = Masters(model) if kind != "autocast" else None
    updated = masters.masters if masters else list(model.parameters())
    settings = recipe["engine"]["optimizer"]["params"]
    optimizer = torch.optim.AdamW(updated, lr=settings["lr"], weight_decay=settings["weight_decay"], fused=True)

    def forward(inputs, targets):
        with torch.autocast(device, torch.bfloat16, enabled=kind == "autocast"):
            return loss_of(model(inputs), targets)

    if kind == "compile":
        forward = torch.compile(forward)

    def step(inputs, targets):
        loss = forward(inputs, targets)
        loss.backward()
        if masters:
            masters.gradients()
        torch.nn.utils.clip_grad_norm_(updated, recipe["engine"]["gradient_clipping"])
        optimizer.step()
        if masters:
            masters.publish()
        else:
            optimizer.zero_grad()
        return loss.detach()

    return step


def drawn_model(recipe, device):
    """Returns the model in bf16, initialized on the device. Each block keeps only its input and is recomputed in the
    backward pass."""
    torch.set_default_dtype(torch.bfloat16)
    torch.manual_seed(1)
    with torch.device(device):
        model = Gpt2(recipe["model"])
    torch.set_default_dtype(torch.float32)
    for block in model.transformer["h"]:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=True)
    return model


def host_optimizer(parameters, settings, device):
    """Returns DeepSpeed's own AdamW for the host, or another one if it cannot be compiled, and the configuration
    that the optimizer needs."""
    problem = "it is not compiled in a rehearsal"
    if device == "cuda":
        try:
            from deepspeed.ops.adam import DeepSpeedCPUAdam
            optimizer = DeepSpeedCPUAdam(parameters, adamw_mode=True, **settings)
            print("DeepSpeed updates by its DeepSpeedCPUAdam", flush=True)
            return optimizer, {}
        except Exception as error:  # many types are possible: no compiler, another CUDA, compiler errors
            problem = str(error).strip().split("\n")[-1]
    print("DeepSpeed updates by PyTorch's fused AdamW instead of its DeepSpeedCPUAdam: " + problem, flush=True)
    return torch.optim.AdamW(parameters, fused=True, **settings), {"zero_force_ds_cpu_optimizer": False}


def deepspeed_step(recipe, device):
    os.environ["DS_ACCELERATOR"] = device
    import deepspeed

    # Otherwise DeepSpeed compiles this operation, which only inference needs, if it finds a compiler.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    model = make_model(recipe, Llama) if "init_weights" in recipe["run"] else drawn_model(recipe, device)
    config = copy.deepcopy(recipe["engine"])
    settings = config.pop("optimizer")["params"]  # DeepSpeed's own optimizers would be compiled
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ.update({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
    deepspeed.init_distributed("nccl" if device == "cuda" else "gloo", verbose=False)
    if "offload_optimizer" in config["zero_optimization"]:
        optimizer, more = host_optimizer(model.parameters(), settings, device)
        config.update(more)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), fused=True, **settings)
    engine, *_ = deepspeed.initialize(model=model, config=config, optimizer=optimizer)
    micro_batches = config.get("gradient_accumulation_steps", 1)

    def step(inputs, targets):
        mean = torch.zeros((), device=device)
        for some, wanted in zip(inputs.chunk(micro_batches), targets.chunk(micro_batches)):
            loss = loss_of(engine(some), wanted)
            engine.backward(loss)
            engine.step()
            mean += loss.detach() / micro_batches
        return mean

    return step


def train(kind, recipe, device):
    step = deepspeed_step(recipe, device) if kind == "deepspeed" else torch_step(kind, recipe, device)
    every, steps = recipe["engine"]["steps_per_print"], recipe["run"]["steps"]
    tokens = every * recipe["engine"]["train_batch_size"] * recipe["data"]["block_size"]
    rate = recipe["engine"]["optimizer"]["params"]["lr"]
    mean, before = torch.zeros((), device=device), time.perf_counter()
    for number, (inputs, targets) in enumerate(batches(recipe, device), 1):
        mean += step(inputs, targets)
        if number % every == 0:
            value = mean.item() / every
            now = time.perf_counter()
            print(f"step {number}/{steps}: loss {value:.4f}, lr {rate}, {tokens / (now - before):.0f} tokens/s", flush=True)
            mean.zero_()
            before = now
    held = torch.cuda.max_memory_allocated() if device == "cuda" else 0
    print(f"rank 0's GPU held at most {held / 2**30:.2f} GiB of tensors", flush=True)


def main():
    kind, file, device = sys.argv[1:]
    with open(file) as text:
        recipe = json.load(text)
    if kind == "prepare":
        prepare(recipe)
    else:
        train(kind, recipe, device)
        os._exit(0)  # skips interpreter exit, during which PyTorch's threads sometimes abort


if __name__ == "__main__":
    main()
