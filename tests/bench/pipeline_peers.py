"""Runs the competitors in tests/bench/pipeline: the same model, weights, data and optimizer, each written in the style
of its users.

  pipeline_peers.py PEER RECIPE METRICS     one rank of torchrun's, or alone

PEER is
  gpipe, 1f1b, interleaved, zb-h1
              torch.distributed.pipelining: each rank is a stage, or with interleaved two; its schedules have other
              names, and ZB1P has zb-h1's memory
  deepspeed   DeepSpeed's PipelineModule, whose schedule is 1F1B, on its CPU accelerator over Gloo
  plain       no pipeline, alone
  stage0, stage1
              one stage alone, without sending or receiving: the seconds of its parts, for one micro-batch"""

import copy
import json
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

import gpt_training  # also adds gpt2 to the path
import gpt2

STAGES = 2


class Part(nn.Module):
    """One of `parts` parts of the GPT, with the same number of blocks in each."""

    def __init__(self, model, part, parts):
        super().__init__()
        body = model.transformer
        blocks = len(body["h"]) // parts
        self.h = body["h"][part * blocks:(part + 1) * blocks]
        self.wpe = body["wpe"] if part == 0 else None
        self.ln_f = body["ln_f"] if part == parts - 1 else None
        self.wte = body["wte"] if self.wpe or self.ln_f else None  # used by the embedding and by the head

    def forward(self, x):
        if self.wpe:
            x = self.wte(x) + self.wpe.weight[:x.shape[1]]
        for block in self.h:
            x = block(x)
        return functional.linear(self.ln_f(x), self.wte.weight) if self.ln_f else x


def make_optimizer(recipe, parameters):
    return torch.optim.AdamW(parameters, **recipe["engine"]["optimizer"]["params"], fused=True)


def micro_batches(recipe):
    return recipe["engine"]["gradient_accumulation_steps"]


def pytorch_step(recipe, schedule):
    from torch.distributed import pipelining

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    parts = STAGES * (2 if schedule == "interleaved" else 1)
    model = gpt_training.make_model(recipe)
    stages = [pipelining.PipelineStage(Part(model, part, parts), part, parts, torch.device("cpu"))
              for part in range(rank, parts, STAGES)]
    make = {"gpipe": pipelining.ScheduleGPipe, "1f1b": pipelining.Schedule1F1B,
            "interleaved": pipelining.ScheduleInterleaved1F1B,
            "zb-h1": pipelining.ScheduleInterleavedZeroBubble}[schedule]
    several = issubclass(make, pipelining.schedules.PipelineScheduleMulti)
    pipe = make(stages if several else stages[0], micro_batches(recipe), loss_fn=gpt_training.loss_of)
    parameters = list(nn.ModuleList(stage.submod for stage in stages).parameters())
    optimizer = make_optimizer(recipe, parameters)
    tied = model.transformer["wte"].weight

    def step(inputs, targets):
        losses = []
        if rank == 0:
            pipe.step(inputs.contiguous(), return_outputs=False)
        else:
            pipe.step(target=targets, losses=losses, return_outputs=False)
        dist.all_reduce(tied.grad)
        counted = [parameter.grad for parameter in parameters if rank == 0 or parameter is not tied]
        # Summed over all stages: the squared norm of the gradients, and the loss, which only the last stage has.
        both = torch.stack([nn.utils.get_total_norm(counted) ** 2, sum(losses, torch.zeros(()))]).detach()
        dist.all_reduce(both)
        nn.utils.clip_grads_with_norm_(parameters, recipe["engine"]["gradient_clipping"], both[0].sqrt())
        optimizer.step()
        optimizer.zero_grad()
        return both[1] / micro_batches(recipe)

    return step


class Positions(nn.Embedding):
    def forward(self, x):
        return x + self.weight[:x.shape[1]]


def head(embedding, x):
    return functional.linear(x, embedding.weight)


def deepspeed_step(recipe):
    import deepspeed
    from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec

    # Otherwise DeepSpeed compiles this operation, which only inference needs, if it finds a compiler.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo")
    gpt, config = recipe["model"], copy.deepcopy(recipe["engine"])
    del config["optimizer"]  # DeepSpeed's own optimizers would be compiled
    width, blocks = gpt["n_embd"], gpt["n_layer"]
    layers = [TiedLayerSpec("wte", nn.Embedding, gpt["vocab_size"], width),
              LayerSpec(Positions, gpt["n_positions"], width),
              *[LayerSpec(gpt2.Block, gpt) for _ in range(blocks)],
              LayerSpec(nn.LayerNorm, width),
              TiedLayerSpec("wte", nn.Embedding, gpt["vocab_size"], width, forward_fn=head)]
    model = PipelineModule(layers, num_stages=STAGES, loss_fn=gpt_training.loss_of, partition_method="type:block")
    # Names that each layer's parameters have in the whole model.
    names = {"tied_modules.wte": "wte", "1": "wpe", **{f"{2 + i}": f"h.{i}" for i in range(blocks)}, f"{2 + blocks}": "ln_f"}
    weights = gpt_training.make_model(recipe).transformer.state_dict()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            layer = next(layer for layer in names if name.startswith(layer + "."))
            parameter.copy_(weights[names[layer] + name[len(layer):]])
            # Without this, DeepSpeed's norm for clipping would count only the first stage.
            parameter.model_parallel = layer != "tied_modules.wte"
    engine, *_ = deepspeed.initialize(model=model, config=config, optimizer=make_optimizer(recipe, model.parameters()))

    def step(inputs, targets):
        return engine.train_batch(zip(inputs.chunk(micro_batches(recipe)), targets.chunk(micro_batches(recipe))))

    return step


def plain_step(recipe):
    model = gpt_training.make_model(recipe)
    optimizer = make_optimizer(recipe, model.parameters())

    def step(inputs, targets):
        total = torch.zeros(())
        for x, y in zip(inputs.chunk(micro_batches(recipe)), targets.chunk(micro_batches(recipe))):
            loss = gpt_training.loss_of(model(x), y) / micro_batches(recipe)
            loss.backward()
            total += loss.detach()
        nn.utils.clip_grad_norm_(model.parameters(), recipe["engine"]["gradient_clipping"])
        optimizer.step()
        optimizer.zero_grad()
        return total

    return step


def time_stage(recipe, stage, metrics_file):
    """Records, for each step, the medians over the micro-batches: forward, with the loss; backward; backward without
    the gradients of matrices, which zb-h1 defers. Also records the update, with clipping."""
    part = Part(gpt_training.make_model(recipe), stage, STAGES)
    optimizer = make_optimizer(recipe, part.parameters())
    gpt, engine = recipe["model"], recipe["engine"]
    shape = engine["train_batch_size"] // micro_batches(recipe), gpt["n_positions"]
    tokens = torch.randint(gpt["vocab_size"], shape)
    hidden = torch.randn(*shape, gpt["n_embd"], requires_grad=True)
    at_once = [parameter for name, parameter in part.named_parameters() if "ln_" in name or "wpe" in name]

    def forward():
        return part(tokens) if stage == 0 else gpt_training.loss_of(part(hidden), tokens)

    def backward(output):
        output.backward(None if output.dim() == 0 else hidden)

    def backward_input(output):
        torch.autograd.grad(output, at_once if stage == 0 else [hidden, *at_once], None if output.dim() == 0 else hidden)

    def update():
        nn.utils.clip_grad_norm_(part.parameters(), engine["gradient_clipping"])
        optimizer.step()
        optimizer.zero_grad()

    def timed(function, *arguments):
        begin = time.perf_counter()
        result = function(*arguments)
        return time.perf_counter() - begin, result

    for number in range(recipe["run"]["steps"]):
        begin = time.perf_counter()
        seconds = {"forward_s": [], "backward_s": [], "backward_input_s": []}
        for _ in range(micro_batches(recipe)):
            for kind, function in (("backward_s", backward), ("backward_input_s", backward_input)):
                took, output = timed(forward)
                seconds["forward_s"].append(took)
                seconds[kind].append(timed(function, output)[0])
        times = {kind: statistics.median(values) for kind, values in seconds.items()} | {"update_s": timed(update)[0]}
        with open(metrics_file, "a") as out:
            step_s = time.perf_counter() - begin
            print(json.dumps({"step": number + 1, "loss": None, "step_s": step_s, **times}), file=out)


def main():
    peer, recipe_file, metrics_file = sys.argv[1:]
    with open(recipe_file) as file:
        recipe = json.load(file)
    torch.set_num_threads(1)
    if peer.startswith("stage"):
        time_stage(recipe, int(peer.removeprefix("stage")), metrics_file)
        return
    make_step = {"deepspeed": deepspeed_step, "plain": plain_step}.get(peer)
    step = make_step(recipe) if make_step else pytorch_step(recipe, peer)
    gpt_training.train(recipe, metrics_file, step, replica=(0, 1))


if __name__ == "__main__":
    main()
