"""Writes folders as DeepSpeed 0.19.8 saves them at ZeRO stage 3, without DeepSpeed, so that tests and benchmarks can
make any size quickly. DeepSpeed's zero_to_fp32 reads these folders (tests/bench/convert)."""

import collections
import math
import os

import torch


def flat_of_rank(tensors, rank, world):
    """Returns the rank's parts of all tensors, each padded, in one flat tensor."""
    parts = []
    for tensor in tensors:
        share = math.ceil(tensor.numel() / world)
        part = tensor.flatten()[rank * share:(rank + 1) * share]
        parts.append(torch.cat([part, part.new_zeros(share - part.numel())]))
    return torch.cat(parts)


def write_zero3(folder, weights, world, step=5, state=None, shared=None, tag=None):
    """Writes {name: fp32 tensor} as the files of `world` ranks. `state(kind, name)` returns exp_avg or exp_avg_sq of
    a weight; by default they are the weights times 2, and their absolute values times 3. `shared`: {alias: name}.
    Returns the folder of the files."""
    state = state or (lambda kind, name: weights[name] * 2 if kind == "exp_avg" else weights[name].abs() * 3)
    tag = tag or f"global_step{step}"
    inner = os.path.join(folder, tag)
    os.makedirs(inner, exist_ok=True)
    config = {"train_micro_batch_size_per_gpu": 2, "train_batch_size": 2 * world, "bf16": {"enabled": True},
              "zero_optimization": {"stage": 3}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}
    shapes = collections.OrderedDict((name, tensor.shape) for name, tensor in weights.items())
    for rank in range(world):
        torch.save({
            "module": {name: torch.empty(0, dtype=torch.bfloat16) for name in weights}, "buffer_names": [],
            "optimizer": None, "param_shapes": [shapes], "frozen_param_shapes": None, "frozen_param_fragments": None,
            "shared_params": dict(shared or {}), "lr_scheduler": None, "skipped_steps": 0, "global_steps": step,
            "global_samples": step * 2 * world, "dp_world_size": world, "mp_world_size": 1, "ds_config": config,
            "ds_version": "0.19.8"}, os.path.join(inner, f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt"))
        adam = {"step": torch.tensor(float(step))}
        for kind in ("exp_avg", "exp_avg_sq"):
            adam[kind] = flat_of_rank([state(kind, name) for name in weights], rank, world)
        torch.save({
            "optimizer_state_dict": {
                "zero_stage": 3, "partition_count": world, "loss_scaler": None, "overflow": False,
                "fp32_flat_groups": [flat_of_rank(list(weights.values()), rank, world)],
                "optimizer_state_dict": {"state": {0: adam}, "param_groups": [{"lr": 1e-3, "params": [0]}]}},
            "ds_config": config, "ds_version": "0.19.8"},
            os.path.join(inner, f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"))
    with open(os.path.join(folder, "latest"), "w") as file:
        file.write(tag)
    return inner
