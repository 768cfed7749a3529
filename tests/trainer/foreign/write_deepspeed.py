"""Makes DeepSpeed train a few steps and save, for each case on standard input, one JSON object per line:

  {"folder": ..., "world": 3, "stage": 2, "dtype": "bf16", "tied": true, ...}

Each folder gets DeepSpeed's files and `expected.safetensors`: the output of DeepSpeed's own converters or, where these
cannot read a checkpoint, the contents of the ranks' memory. Run it with DeepSpeed's Python. It imports DeepSpeed once
and forks the ranks, because the import takes longer than all cases of a world size."""

import contextlib
import io
import json
import logging
import os
import sys
import tempfile
import types

os.environ.update(DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo",
                  LOCAL_RANK="0", DS_SKIP_CUDA_CHECK="1")

import deepspeed  # noqa: E402
import torch  # noqa: E402
import torch._dynamo  # noqa: E402, F401 (optimizers import it; here it is done once, before the ranks are forked)
from deepspeed.checkpoint import ds_to_universal  # noqa: E402
from deepspeed.runtime.zero.config import DeepSpeedZeroConfig  # noqa: E402
from deepspeed.utils import zero_to_fp32  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
logging.disable(logging.WARNING)
# PyTorch computes fp16 on all CPUs, but DeepSpeed accepts only CPUs that compute it fast.
deepspeed.accelerator.get_accelerator().is_fp16_supported = lambda: True
# Importing this optimizer compiles its kernels, and no case uses it.
sys.modules["deepspeed.runtime.zero.muon.muon_optimizer"] = types.SimpleNamespace(MuonWithAuxAdam=type("", (), {}))
# build_shm_op would compile a kernel. Gloo suffices for these cases.
sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
STEPS = 3


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(6)
        self.up = torch.nn.Linear(6, 11)
        self.down = torch.nn.Linear(11, 6, bias=False)
        self.register_buffer("gain", torch.tensor([1.5]))

    def forward(self, x):
        return x + self.gain.to(x.dtype) * self.down(torch.relu(self.up(self.norm(x))))


class Model(torch.nn.Module):
    """A model with parameters of one element, and of sizes that no number of ranks divides."""

    def __init__(self, tied, frozen):
        super().__init__()
        self.embed = torch.nn.Embedding(13, 6)
        self.blocks = torch.nn.ModuleList([Block(), Block()])
        self.adapter = torch.nn.Linear(6, 5)
        self.scale = torch.nn.Parameter(torch.tensor([0.7]))
        self.head = torch.nn.Linear(6, 13, bias=False)
        self.register_buffer("seen", torch.tensor([3, 4], dtype=torch.int64))
        self.register_buffer("scratch", torch.zeros(2), persistent=False)
        if tied:
            self.head.weight = self.embed.weight
        if frozen:
            for parameter in [*self.adapter.parameters(), self.blocks[0].up.weight][:frozen]:
                parameter.requires_grad_(False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x * self.scale), self.adapter(x)


def groups_of(model, two):
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if not two:
        return [{"params": [p for _, p in trained]}]
    return [{"params": [p for _, p in trained if p.dim() > 1], "weight_decay": 0.1},
            {"params": [p for _, p in trained if p.dim() <= 1], "weight_decay": 0.0, "lr": 2e-3}]


def configuration(case):
    zero = {"stage": case["stage"]}
    if case["stage"] == 3:
        zero.update(stage3_param_persistence_threshold=0, stage3_max_live_parameters=0,
                    sub_group_size=60 if case.get("sub_groups") else 10**9)
    elif case.get("alignment") and "parameter_alignment" in DeepSpeedZeroConfig.model_fields:  # absent in 0.19.6
        zero["parameter_alignment"] = True
    if case.get("offload"):
        zero["offload_optimizer"] = {"device": "cpu"}
    for key in ("round_robin_gradients", "elastic_checkpoint"):
        if case.get(key):
            zero[key] = True
    config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": zero, "zero_force_ds_cpu_optimizer": False,
              "zero_allow_untested_optimizer": True, "steps_per_print": 10**9,
              "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10, "warmup_max_lr": 1e-3}}}
    if case["dtype"] == "fp16":
        config["fp16"] = {"enabled": True, "initial_scale_power": 4}
    if case["dtype"] == "bf16":
        config["bf16"] = {"enabled": True}
    if case.get("accumulate"):
        config["data_types"] = {"grad_accum_dtype": case["accumulate"]}
    if case.get("optimizer"):
        config["optimizer"] = case["optimizer"]
    return config


def train(case, rank):
    torch.manual_seed(case.get("seed", 1))
    with deepspeed.zero.Init(enabled=case["stage"] == 3 and bool(case.get("init"))):
        # Without ZeRO, names are found by shape, so parameters of one shape must all be trained or all be frozen.
        model = Model(case.get("tied"), (2 if case["stage"] == 0 else 3) if case.get("frozen") else 0)
    groups = groups_of(model, case.get("groups"))
    optimizer = None if case.get("optimizer") else torch.optim.AdamW(groups, lr=1e-3)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, model_parameters=groups,
                                      config=configuration(case))
    generator = torch.Generator().manual_seed(rank)
    for _ in range(STEPS):
        tokens = torch.randint(13, (2, 7), generator=generator)
        logits, side = engine(tokens)
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens.flatten())
        engine.backward(loss + side.float().square().mean())
        engine.step()
    engine.save_checkpoint(case["folder"], client_state={"note": "of the program"},
                           exclude_frozen_parameters=bool(case.get("exclude_frozen")))
    return engine


def whole(parameter):
    """Returns a copy of the parameter in the model's dtype, gathered at stage 3."""
    if hasattr(parameter, "ds_id"):
        with deepspeed.zero.GatheredParameters([parameter]):
            return parameter.detach().clone()
    return parameter.detach().clone()


def from_memory(engine):
    """Returns frozen parameters and buffers by name, and the names of aliases."""
    tensors, aliases, names = {}, {}, {}
    for name, parameter in engine.module.named_parameters(remove_duplicate=False):
        key = getattr(parameter, "ds_id", id(parameter))
        if key in names:
            aliases[name] = names[key]
            continue
        names[key] = name
        value = whole(parameter)
        if not parameter.requires_grad:
            tensors[name] = value
    tensors.update((name, buffer.clone()) for name, buffer in engine.module.named_buffers()
                   if not name.endswith("scratch"))
    return tensors, aliases


def without_zero(engine):
    """Returns weights and Adam's state at stage 0, at which every rank has the whole state."""
    names = {id(p): name for name, p in engine.module.named_parameters()}
    wrapper, tensors = engine.optimizer, {}
    inner = getattr(wrapper, "optimizer", wrapper)
    for group, owners in enumerate(inner.param_groups):
        members = wrapper.fp16_groups[group] if hasattr(wrapper, "fp16_groups") else owners["params"]
        for member, owner in zip(members, owners["params"]):  # owners have the fp32 weights
            name = names[id(member)]
            for key, value in {"": owner, **{key: inner.state[owner][key] for key in ("exp_avg", "exp_avg_sq")}}.items():
                tensors[f"optimizer/{key}/{name}" if key else name] = value.detach().clone()
    return tensors


def from_ranks(engine, case):
    """Returns weights and the optimizer's state at stages 1 to 3, gathered from the ranks' memory."""
    tensors = {}
    for name, parameter in engine.module.named_parameters():
        if parameter.requires_grad:
            tensors[name] = deepspeed.utils.safe_get_full_fp32_param(parameter)
            sgd = case.get("optimizer", {}).get("type") == "SGD"
            for key in ("momentum_buffer", ) if sgd else ("exp_avg", "exp_avg_sq"):
                tensors[f"optimizer/{key}/{name}"] = deepspeed.utils.safe_get_full_optimizer_state(parameter, key)
    return tensors


def universal(case, tag):
    """Returns the tensors that ds_to_universal writes. Leaves its folder beside the checkpoint's folder."""
    source = os.path.join(case["folder"], tag)
    target = os.path.join(case["folder"], "universal", tag)
    arguments = types.SimpleNamespace(input_folder=source, output_folder=target, num_extract_workers=1,
                                      num_merge_workers=1, keep_temp_folder=False, strict=True,
                                      inject_missing_state=True)
    ds_to_universal.main(arguments)
    tensors = {}
    for name in os.listdir(os.path.join(target, "zero")):
        folder = os.path.join(target, "zero", name)
        if not os.path.isdir(folder):
            continue
        for key in ("fp32", "exp_avg", "exp_avg_sq"):
            file = os.path.join(folder, key + ".pt")
            if not os.path.exists(file):  # buffers and aliases have no state
                continue
            value = torch.load(file, weights_only=False)
            value = value["param"] if isinstance(value, dict) else value
            tensors[f"optimizer/{key}/{name}" if key != "fp32" else name] = value.clone()
    return tensors


def converted_by_deepspeed(case, tag, others):
    """Returns the tensors on which both converters agree, except `others`: names of buffers, frozen parameters and
    aliases. ds_to_universal reads neither optimizers other than Adam nor elastic_checkpoint, and confuses parameters
    with round_robin_gradients, so it is skipped for these."""
    expected = {}
    if not (case.get("from_ranks") or case.get("elastic_checkpoint") or case.get("round_robin_gradients")):
        expected = {name: value for name, value in universal(case, tag).items() if name not in others}
    try:
        converted = zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(case["folder"])
    except ValueError as error:
        assert case.get("accumulate") and "is not a zero checkpoint" in str(error), error
        converted = {}
    for name, value in converted.items():
        if name in others:
            continue
        assert name not in expected or torch.equal(expected[name].flatten(), value.flatten()), name
        expected[name] = value
    return expected


def expect(case, engine):
    """Writes expected.safetensors and expected.json on rank 0. The other ranks only take part in gathering."""
    memory, aliases = from_memory(engine)
    expected = from_ranks(engine, case) if case.get("from_ranks") else {}
    if int(os.environ["RANK"]) > 0:
        return
    if case["stage"] == 0:
        expected = without_zero(engine)
    else:
        expected.update(converted_by_deepspeed(case, f"global_step{STEPS}", {*memory, *aliases}))
    buffers = dict(engine.module.named_buffers())
    expected.update((name, value) for name, value in memory.items()
                    if name in buffers or not case.get("exclude_frozen"))
    shapes = {name: list(getattr(p, "ds_shape", p.shape)) for name, p in engine.module.named_parameters()}
    for name, value in expected.items():
        shape = shapes.get(name.split("/")[-1])
        expected[name] = (value.view(shape) if shape is not None else value).contiguous().clone()
    save_file(expected, os.path.join(case["folder"], "expected.safetensors"))
    inner = getattr(engine.optimizer, "optimizer", engine.optimizer)
    with open(os.path.join(case["folder"], "expected.json"), "w") as file:
        json.dump({"version": deepspeed.__version__, "aliases": aliases,
                   "scheduled": engine.lr_scheduler.last_batch_iteration + 1,
                   "updates": updates_of(inner), "rates": [group["lr"] for group in engine.optimizer.param_groups],
                   "optimizer": type(inner).__name__, "scaler": scaler_of(engine)}, file)


def updates_of(optimizer):
    steps = {int(state["step"]) for state in optimizer.state.values() if "step" in state}
    assert len(steps) < 2, steps
    return steps.pop() if steps else STEPS


def scaler_of(engine):
    """Returns the scaler's scale, iteration and last overflow."""
    scaler = getattr(engine.optimizer, "loss_scaler", None) or getattr(engine.optimizer, "loss_scale_config", None)
    return [getattr(scaler, key, None) for key in ("cur_scale", "cur_iter", "last_overflow_iter")]


def write_all(cases, rank):
    for case in cases:
        quiet = io.StringIO()
        try:
            with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
                engine = train(case, rank)
                expect(case, engine)
                engine.destroy()
        except BaseException:
            sys.stderr.write(f"{quiet.getvalue()[-3000:]}\nrank {rank} of {json.dumps(case)}\n")
            raise
        torch.distributed.barrier()


def rank_main(rank, world, cases, meeting, work):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=world)
    deepspeed.init_distributed("gloo", verbose=False)
    work(cases, rank)
    torch.distributed.destroy_process_group()


def fork_ranks(cases, work):
    """Calls work(cases of one world size, rank) in `world` processes, for one world size after the other."""
    with tempfile.TemporaryDirectory() as folder:
        for world in sorted({case["world"] for case in cases}):
            chosen = [case for case in cases if case["world"] == world]
            children = []
            for rank in range(world):
                child = os.fork()
                if child == 0:
                    status = 1
                    try:
                        rank_main(rank, world, chosen, os.path.join(folder, f"meeting-{world}"), work)
                        status = 0
                    except BaseException:
                        import traceback
                        traceback.print_exc()
                    finally:
                        sys.stderr.flush()
                        os._exit(status)
                children.append(child)
            # If a rank fails, its connections end, and so do the ranks that wait for it.
            if any(os.waitpid(child, 0)[1] != 0 for child in children):
                sys.exit(1)


if __name__ == "__main__":
    fork_ranks([json.loads(line) for line in sys.stdin], write_all)
