"""Trains transformers' GPT-2 with DeepSpeed, for each case on standard input, one JSON object per line:

  {"folder": ..., "world": 2, "recipe": {...}, "save_after": 3, "engine": {...}}

`recipe` is the recipe that `dslaunch train` would get; `engine` is DeepSpeed's configuration. The samples of each step
are the same as with `dslaunch train`. Saves into `folder` after `save_after` steps, and writes steps.json there, with
the loss over all ranks, the gradient norm, the learning rate and the loss scale of each of run.steps steps.
Run it with DeepSpeed's Python. It imports DeepSpeed once and forks the ranks, because the import takes longer than
all cases.
With "trainer": true, transformers' Trainer runs DeepSpeed, and saves into checkpoint-<save_after> in `folder`."""

import contextlib
import io
import json
import os
import sys

from write_deepspeed import deepspeed, fork_ranks, torch

from safetensors.torch import load_file  # noqa: E402
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset  # noqa: E402
from transformers import GPT2Config, GPT2LMHeadModel  # noqa: E402


def make_model(recipe):
    config = {key: value for key, value in recipe["model"].items() if key != "type"}
    model = GPT2LMHeadModel(GPT2Config(**config, bos_token_id=None, eos_token_id=None, attn_implementation="eager"))
    model.load_state_dict(load_file(recipe["run"]["init_weights"]), strict=False)  # also names the tied head
    model.train()
    return model


def read_data(recipe):
    block = recipe["data"]["block_size"]
    with open(recipe["data"]["path"], "rb") as file:
        tokens = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).long()
    end = (len(tokens) - 1) // block * block
    return TensorDataset(tokens[:end].view(-1, block), tokens[1:end + 1].view(-1, block))


def batches(recipe, world, rank, size):
    data = read_data(recipe)
    sampler = DistributedSampler(data, world, rank, shuffle=True, seed=recipe["run"]["seed"])
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        yield from DataLoader(data, size, sampler=sampler)
        epoch += 1


def train(case, rank):
    recipe, world = case["recipe"], case["world"]
    config = case["engine"]
    model = make_model(recipe)
    optimizer = None
    if "optimizer" not in config:  # the program's own optimizer
        optimizer = torch.optim.AdamW(model.parameters(), **case["adamw"])
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, model_parameters=model.parameters(),
                                      config=config)
    stream = batches(recipe, world, rank, engine.train_micro_batch_size_per_gpu())
    steps = []
    for step in range(1, recipe["run"]["steps"] + 1):
        local = 0.0
        record = {"lr": engine.get_lr()[0], "loss_scale": engine.optimizer.loss_scale if "fp16" in config else 1.0}
        skipped = engine.skipped_steps
        for _ in range(engine.gradient_accumulation_steps()):
            inputs, targets = next(stream)
            logits = engine(inputs).logits
            loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
            engine.backward(loss)
            engine.step()
            local += loss.item() / engine.gradient_accumulation_steps()
        mean = torch.tensor([local], dtype=torch.float64)
        torch.distributed.all_reduce(mean)
        record.update(loss=mean.item() / world, skipped=engine.skipped_steps > skipped,
                      grad_norm=float(engine.get_global_grad_norm() or 0))
        steps.append(record)
        if step == case["save_after"]:
            engine.save_checkpoint(case["folder"])
    if rank == 0:
        with open(os.path.join(case["folder"], "steps.json"), "w") as file:
            json.dump(steps, file)
    engine.destroy()


def train_with_trainer(case, rank):
    """Trains with transformers' Trainer and writes only losses. Needs data.shuffle false, because Trainer shuffles
    in another order."""
    from transformers import Trainer, TrainingArguments  # inside the function, because the import takes seconds

    recipe, world, losses = case["recipe"], case["world"], []
    # accelerate requires these variables, although the ranks are already connected.
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="1", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(world))

    class OurLoss(Trainer):
        def compute_loss(self, model, inputs, **_):
            logits = model(inputs["x"]).logits
            loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), inputs["y"].flatten())
            losses.append(loss.item())
            return loss

        def _get_train_sampler(self, dataset=None):
            return torch.utils.data.SequentialSampler(self.train_dataset)

    tensors = read_data(recipe).tensors
    micro = case["engine"]["train_batch_size"] // world // case["engine"]["gradient_accumulation_steps"]
    adamw = case["engine"]["optimizer"]["params"]
    options = TrainingArguments(
        learning_rate=adamw["lr"], adam_beta1=adamw["betas"][0], adam_beta2=adamw["betas"][1],
        weight_decay=adamw["weight_decay"], warmup_steps=case["engine"]["scheduler"]["params"]["warmup_num_steps"],
        output_dir=case["folder"], max_steps=recipe["run"]["steps"], save_steps=case["save_after"], use_cpu=True,
        per_device_train_batch_size=micro, gradient_accumulation_steps=case["engine"]["gradient_accumulation_steps"],
        deepspeed=case["engine"], report_to=[], remove_unused_columns=False, disable_tqdm=True)
    samples = [{"x": x, "y": y} for x, y in zip(*tensors)]
    OurLoss(make_model(recipe), options, train_dataset=samples).train()
    parts = case["engine"]["gradient_accumulation_steps"]
    sums = torch.tensor(losses, dtype=torch.float64).view(-1, parts).mean(1)
    torch.distributed.all_reduce(sums)
    if rank == 0:
        with open(os.path.join(case["folder"], "steps.json"), "w") as file:
            json.dump([{"loss": loss / world} for loss in sums.tolist()], file)


def train_all(cases, rank):
    for case in cases:
        quiet = io.StringIO()
        try:
            with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
                (train_with_trainer if case.get("trainer") else train)(case, rank)
        except BaseException:
            sys.stderr.write(f"{quiet.getvalue()[-3000:]}\nrank {rank} of {json.dumps(case)}\n")
            raise
        torch.distributed.barrier()


if __name__ == "__main__":
    fork_ranks([json.loads(line) for line in sys.stdin], train_all)
