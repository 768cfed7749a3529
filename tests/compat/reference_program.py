"""Trains style_program's model on its data for each OPTIONS: reference_program.py CASE RANKS OPTIONS-AS-JSON...
Uses Python's PyTorch, or DeepSpeed's own optimizers, in RANKS forked processes. Prints the ranks' mean loss of each
step."""

import json
import os
import sys
import tempfile

import torch
import torch.distributed as dist

STEPS, BATCH, INPUTS, CLASSES = 20, 24, 20, 10


def make_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(INPUTS, 32), torch.nn.ReLU(), torch.nn.Linear(32, CLASSES))


def batches(rank, ranks):
    torch.manual_seed(1)
    inputs, targets = torch.randn(STEPS, BATCH, INPUTS), torch.randint(0, CLASSES, (STEPS, BATCH))
    rows = slice(rank * BATCH // ranks, (rank + 1) * BATCH // ranks)
    return [(x[rows], y[rows]) for x, y in zip(inputs, targets)]


def loss_of(model, batch):
    return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])


def mean_over_ranks(tensor):
    dist.all_reduce(tensor)
    return tensor.div_(dist.get_world_size())


def tell(loss):
    mean = mean_over_ranks(loss.detach().clone())
    if dist.get_rank() == 0:
        print("loss %.9g" % mean.item(), flush=True)


def apart(rank, ranks, options):
    """Trains the ranks separately. After every inner_steps steps, the mean of the ranks' changes is the outer SGD's
    gradient. Without outer options, the ranks' weights become their mean."""
    model, start = make_model(), make_model()
    inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    outer = torch.optim.SGD(start.parameters(), **options["outer"]) if "outer" in options else None
    for number, batch in enumerate(batches(rank, ranks), 1):
        inner.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        inner.step()
        tell(loss)
        if number % options["inner_steps"]:
            continue
        with torch.no_grad():
            for own, common in zip(model.parameters(), start.parameters()):
                if outer is None:
                    mean_over_ranks(own.data)
                else:
                    common.grad = mean_over_ranks(common - own)
        if outer is not None:
            outer.step()
            model.load_state_dict(start.state_dict())


def powersgd(rank, ranks, options):
    from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
    model = torch.nn.parallel.DistributedDataParallel(make_model())
    model.register_comm_hook(PowerSGDState(None, **options), powerSGD_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for batch in batches(rank, ranks):
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        tell(loss)


class Packer:
    """Replaces DeepSpeed's packbits, which is built only for accelerators."""

    def load(self):
        return self

    def packbits(self, values, _, __):
        import numpy
        return torch.from_numpy(numpy.packbits(values.numpy() >= 0))

    def unpackbits(self, packed, _, __):
        import numpy
        return torch.from_numpy(numpy.unpackbits(packed.numpy()).astype(numpy.float32)) * 2 - 1


def deepspeed_optimizer(rank, ranks, options):
    """Runs DeepSpeed's optimizer on its "compressed" backend. The first call makes the state, as in DeepSpeed's
    engine. That call counts as a step, which is undone."""
    import deepspeed.comm.torch
    from deepspeed.runtime.comm import compressed
    from deepspeed.runtime.fp16.onebit import adam, lamb, zoadam
    compressed.PackbitsBuilder = Packer
    gather = compressed.dist.all_gather  # Gloo, unlike NCCL, requires a number to have the shape of its destination
    compressed.dist.all_gather = lambda to, own, group: gather(to, own.reshape(to[0].shape), group=group)
    deepspeed.comm.torch.build_shm_op = lambda: None  # DeepSpeed's CPU collectives, which would be compiled here
    deepspeed.comm.init_distributed("gloo", auto_mpi_discovery=False)

    class Engine:
        local_rank, mpu, enable_backward_allreduce = rank, None, True

    engine, model = Engine(), make_model()
    kind = {"OneBitAdam": adam.OnebitAdam, "ZeroOneAdam": zoadam.ZeroOneAdam, "OneBitLamb": lamb.OnebitLamb}
    output, sys.stdout = sys.stdout, sys.stderr  # the optimizers print
    optimizer = kind[options.pop("type")](model.parameters(), engine, comm_backend_name="compressed", **options)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    for state in optimizer.state.values():
        state["step"] = 0
    for batch in batches(rank, ranks):
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        if engine.enable_backward_allreduce:
            for p in model.parameters():
                mean_over_ranks(p.grad)
        sys.stdout = output
        tell(loss)
        sys.stdout = sys.stderr
        optimizer.step()


def run_ranks(case, ranks, options):
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(ranks):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank))
                    dist.init_process_group("gloo", init_method="file://%s/store" % folder, rank=rank, world_size=ranks)
                    globals()[case](rank, ranks, options)
                    dist.barrier()
                    code = 0
                except BaseException:
                    import traceback
                    traceback.print_exc()
                finally:
                    sys.stdout.flush()
                    os._exit(code)
            children.append(child)
        return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0 for child in children)


def main():
    case, ranks = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    # PyTorch imports torch._dynamo here, before the ranks fork. Otherwise an optimizer's first step would import the
    # module in each rank.
    from torch import _dynamo
    if case == "deepspeed_optimizer":
        os.environ["DS_ACCELERATOR"] = "cpu"
        import deepspeed.runtime.fp16.onebit.adam
    if case == "powersgd":
        from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
    for options in sys.argv[3:]:
        if run_ranks(case, ranks, json.loads(options)):
            sys.exit(1)


main()
