"""PyTorch's half of tests/bench/gpu: `gpu_torch.py prepare|eager|autocast|compile RECIPE`. Prints the lines that
dslaunch-train prints."""

import json
import sys
import time

import numpy
import torch

from gpt_training import loss_of, make_model, prepare


def batches(recipe):
    """Pinned, one step ahead, as a data loader would have them."""
    tokens = numpy.memmap(recipe["data"]["path"], "<u2", "r")
    block, batch = recipe["model"]["n_positions"], recipe["engine"]["train_batch_size"]
    for number in range(recipe["run"]["steps"]):
        first = number * batch
        rows = numpy.stack([tokens[(first + i) * block:(first + i + 1) * block + 1] for i in range(batch)])
        rows = torch.from_numpy(rows.astype(numpy.int64))
        yield rows[:, :-1].contiguous().pin_memory(), rows[:, 1:].contiguous().pin_memory()


class Masters:
    """bf16 weights, and the fp32 copies that are updated."""

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


def train(kind, recipe):
    torch.cuda.init()
    model = make_model(recipe).cuda()
    masters = Masters(model) if kind != "autocast" else None
    updated = masters.masters if masters else list(model.parameters())
    settings = recipe["engine"]["optimizer"]["params"]
    optimizer = torch.optim.AdamW(updated, lr=settings["lr"], weight_decay=settings["weight_decay"], fused=True)

    def forward(inputs, targets):
        with torch.autocast("cuda", torch.bfloat16, enabled=kind == "autocast"):
            return loss_of(model(inputs), targets)

    if kind == "compile":
        forward = torch.compile(forward)
    every, steps = recipe["engine"]["steps_per_print"], recipe["run"]["steps"]
    tokens = every * recipe["engine"]["train_batch_size"] * recipe["model"]["n_positions"]
    mean, before = torch.zeros((), device="cuda"), time.perf_counter()
    for number, (inputs, targets) in enumerate(batches(recipe), 1):
        loss = forward(inputs.cuda(non_blocking=True), targets.cuda(non_blocking=True))
        loss.backward()
        if masters:
            masters.gradients()
        torch.nn.utils.clip_grad_norm_(updated, recipe["engine"]["gradient_clipping"])
        optimizer.step()
        if masters:
            masters.publish()
        else:
            optimizer.zero_grad()
        mean += loss.detach()
        if number % every == 0:
            value = mean.item() / every
            now = time.perf_counter()
            print(f"step {number}/{steps}: loss {value:.4f}, lr {settings['lr']}, {tokens / (now - before):.0f} tokens/s",
                  flush=True)
            mean.zero_()
            before = now
    print(f"rank 0's GPU held at most {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB of tensors")


def main():
    kind, file = sys.argv[1:]
    with open(file) as text:
        recipe = json.load(text)
    if kind == "prepare":
        prepare(recipe)
    else:
        train(kind, recipe)


if __name__ == "__main__":
    main()
