"""Runs the competitors in tests/bench/zero and tests/bench/train: the same model, weights, data and optimizer, each
written in the style of its users.

  zero_peers.py PEER RECIPE METRICS     one rank of torchrun's, or alone

PEER is
  deepspeed   DeepSpeed on its CPU accelerator over Gloo, with RECIPE's engine section as its configuration
  fsdp2       fully_shard on each block and on the whole model; with bf16, fp32 parameters are sharded, and
              computing and reducing are in bf16, as in the other two
  plain       no sharding, alone; with bf16 a bf16 model beside the fp32 weights that the optimizer updates"""

import copy
import json
import sys

import torch
import torch.distributed as dist
from torch import nn

import gpt_training


def is_bf16(recipe):
    return recipe["engine"].get("bf16", {}).get("enabled", False)


def make_optimizer(recipe, parameters):
    return torch.optim.AdamW(parameters, **recipe["engine"]["optimizer"]["params"], fused=True)


def deepspeed_step(recipe):
    import deepspeed

    # Otherwise DeepSpeed compiles this operation, which only inference needs, if it finds a compiler.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    config = copy.deepcopy(recipe["engine"])
    del config["optimizer"]  # DeepSpeed's own optimizers would be compiled
    model = gpt_training.make_model(recipe)
    deepspeed.init_distributed("gloo")
    engine, *_ = deepspeed.initialize(model=model, config=config, optimizer=make_optimizer(recipe, model.parameters()))

    def step(inputs, targets):
        loss = gpt_training.loss_of(engine(inputs), targets)
        engine.backward(loss)
        engine.step()
        return loss

    return step


def fsdp2_step(recipe):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    dist.init_process_group("gloo")
    model = gpt_training.make_model(recipe)
    dtype = torch.bfloat16 if is_bf16(recipe) else None
    options = {"mesh": init_device_mesh("cpu", (dist.get_world_size(),)),
               "mp_policy": MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype)}
    for block in gpt_training.blocks_of(model):
        fully_shard(block, **options)
    fully_shard(model, **options)
    optimizer = make_optimizer(recipe, model.parameters())

    def step(inputs, targets):
        loss = gpt_training.loss_of(model(inputs), targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), recipe["engine"]["gradient_clipping"])
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def plain_step(recipe):
    model = gpt_training.make_model(recipe)
    parameters = list(model.parameters())
    masters = parameters
    if is_bf16(recipe):
        masters = [nn.Parameter(parameter.detach().clone()) for parameter in parameters]
        model.to(torch.bfloat16)
    optimizer = make_optimizer(recipe, masters)

    def step(inputs, targets):
        loss = gpt_training.loss_of(model(inputs), targets)
        loss.backward()
        if masters is not parameters:
            for master, parameter in zip(masters, parameters):
                master.grad, parameter.grad = parameter.grad.float(), None
        nn.utils.clip_grad_norm_(masters, recipe["engine"]["gradient_clipping"])
        optimizer.step()
        optimizer.zero_grad()
        if masters is not parameters:
            with torch.no_grad():
                for master, parameter in zip(masters, parameters):
                    parameter.copy_(master)
        return loss

    return step


if __name__ == "__main__":
    with open(sys.argv[2]) as file:
        wanted = json.load(file)
    torch.set_num_threads(1)
    make_step = {"deepspeed": deepspeed_step, "fsdp2": fsdp2_step, "plain": plain_step}[sys.argv[1]]
    gpt_training.train(wanted, sys.argv[3], make_step(wanted))
