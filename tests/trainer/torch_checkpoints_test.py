"""Tests checkpoints of PyTorch. What dslaunch reads from state dicts must equal torch.load, and from
torch.distributed.checkpoint it must equal dcp_to_torch_save. PyTorch must load what dslaunch writes. Ranks are forks
over gloo, so that PyTorch is imported only once."""

import collections
import dataclasses
import json
import logging
import multiprocessing
import os
import pickle
import shutil
import subprocess
import tempfile
import types
import unittest
import warnings
import zlib

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

warnings.filterwarnings("ignore")

PROGRAM = os.environ["DSLAUNCH_FOREIGN_PLANS"]
DTYPES = {torch.float64: "F64", torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.int64: "I64",
          torch.int32: "I32", torch.uint8: "U8", torch.bool: "BOOL"}


def plan(path, **options):
    """Returns the plan of the checkpoint as a dict. foreign_plans.cc describes the keys and the options."""
    done = subprocess.run([PROGRAM], input=json.dumps({"path": path, **options}) + "\n", capture_output=True, text=True,
                          check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def shown(tensor):
    """Returns a tensor in the form of a plan: dtype, shape and the CRC-32 of its row-major bytes."""
    tensor = tensor.detach().contiguous()
    content = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
    return [DTYPES[tensor.dtype], list(tensor.shape), zlib.crc32(content)]


class StateDictTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def saved(self, value, name="weights.pt", **options):
        torch.save(value, self.path(name), **options)
        return self.path(name)

    def assert_read(self, result, state):
        """Asserts that all tensors of the dict are read, or are aliases of tensors that are read."""
        self.assertNotIn("refused", result)
        got = {**result["tensors"], **{alias: result["tensors"][name] for alias, name in result["aliases"].items()}}
        self.assertEqual(got, {name: shown(tensor) for name, tensor in state.items()})

    def test_reads_tensors_with_strides_and_offsets(self):
        torch.manual_seed(1)
        base = torch.randn(6, 5, 4)
        state = {"whole": base, "transposed": base.transpose(0, 2), "rows": base[2:4], "column": base[:, 1],
                 "every_second": base[::2, ::2], "bf16": base.bfloat16(), "half": base.half(),
                 "ints": torch.arange(7), "flags": base > 0, "number": torch.tensor(2.5), "empty": torch.empty(0, 3),
                 "repeated": torch.tensor([1., 2.]).expand(3, 2)}
        self.assert_read(plan(self.saved(state)), state)

    def test_reads_module_state_dict(self):
        model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Linear(4, 2))
        self.assert_read(plan(self.saved(model.state_dict())), model.state_dict())
        self.assert_read(plan(self.saved(dict(model.named_parameters()))), dict(model.named_parameters()))

    def test_reads_dict_at_key(self):
        state = collections.OrderedDict(a=torch.ones(2), b=torch.zeros(3))
        path = self.saved({"epoch": 3, "state_dict": state, "optimizer": {"lr": 0.1}})
        self.assert_read(plan(path, key="state_dict"), state)
        refused = plan(path)["refused"]
        self.assertRegex(refused, "weights.pt: has no tensors at its root; choose one of its dicts with --key: epoch, "
                                  r"state_dict \(a dict of 2 tensors\), optimizer \(a dict of 0 tensors\)")
        self.assertRegex(plan(path, key="model")["refused"], "has no dict 'model'; it has epoch, state_dict")

    def test_notes_values_that_are_not_tensors(self):
        result = plan(self.saved({"a": torch.ones(2), "epoch": 3, 7: "x"}))
        self.assert_read(result, {"a": torch.ones(2)})
        self.assertEqual(result["notes"], ["2 values of weights.pt are not tensors and were not read, such as epoch"])

    def test_names_calls_that_are_not_run(self):
        target = os.path.join(tempfile.gettempdir(), "dslaunch-made-by-a-pickle-%d" % os.getpid())

        class Hostile:
            def __reduce__(self):
                return os.mkdir, (target,)

        result = plan(self.saved({"a": torch.ones(2), "hook": Hostile()}))
        self.assert_read(result, {"a": torch.ones(2)})
        self.assertEqual(result["notes"], ["1 value of weights.pt is not a tensor and was not read, such as hook (posix.mkdir, "
                                           "which is not run)"])
        self.assertFalse(os.path.exists(target))

    def test_tied_weights_are_aliases(self):
        tied = torch.randn(4, 3)
        state = {"embed.weight": tied, "lm_head.weight": tied, "part": tied[:2]}
        result = plan(self.saved(state))
        self.assertEqual(result["aliases"], {"lm_head.weight": "embed.weight"})
        self.assert_read(result, state)

    def test_drops_prefixes_of_wrappers(self):
        state = {"fc.weight": torch.ones(2), "fc.bias": torch.zeros(2)}
        wrapped = {"module._orig_mod." + name: tensor for name, tensor in state.items()}
        result = plan(self.saved(wrapped))
        self.assert_read(result, state)
        self.assertEqual(result["notes"], ["names are without _orig_mod., module."])
        given = {"net." + name: tensor for name, tensor in state.items()}
        self.assert_read(plan(self.saved(given), prefix="net."), state)
        self.assertRegex(plan(self.saved(given), prefix="model.")["refused"], "no name begins with 'model.'")

    def write_shards(self):
        """Writes two shards with an index, as save_pretrained(safe_serialization=False) does."""
        shards = {"pytorch_model-00001-of-00002.bin": {"a": torch.ones(2)},
                  "pytorch_model-00002-of-00002.bin": {"b": torch.zeros(3), "c": torch.arange(4)}}
        for name, state in shards.items():
            self.saved(state, name)
        index = {"metadata": {}, "weight_map": {key: name for name, state in shards.items() for key in state}}
        self.write_index(index)
        return index, {key: tensor for state in shards.values() for key, tensor in state.items()}

    def write_index(self, index):
        with open(self.path("pytorch_model.bin.index.json"), "w") as file:
            json.dump(index, file)

    def test_reads_shards_of_index(self):
        _, state = self.write_shards()
        result = plan(self.folder)
        self.assert_read(result, state)
        self.assertEqual(result["files"], ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"])

    def test_reports_missing_shards_and_tensors(self):
        index, _ = self.write_shards()
        index["weight_map"]["d"] = "pytorch_model-00002-of-00002.bin"
        self.write_index(index)
        os.remove(self.path("pytorch_model-00001-of-00002.bin"))
        self.assertEqual(plan(self.folder)["missing"],
                         ["pytorch_model-00001-of-00002.bin", "d in pytorch_model-00002-of-00002.bin"])

    def test_refuses_index_that_leaves_folder(self):
        index, _ = self.write_shards()
        index["weight_map"]["a"] = "../weights.pt"
        self.write_index(index)
        self.assertRegex(plan(self.folder)["refused"], "weight_map.a is not the name of a file in this folder")

    def test_reads_safetensors(self):
        state = {"a": torch.ones(2, 3).bfloat16(), "b": torch.arange(4)}
        save_file(state, self.path("model.safetensors"))
        self.assert_read(plan(self.folder), state)
        self.assert_read(plan(self.path("model.safetensors")), state)

    def test_own_checkpoint_is_not_a_state_dict(self):
        save_file({"a": torch.ones(2)}, self.path("model.safetensors"))
        with open(self.path("manifest.json"), "w") as file:
            file.write("{}")
        self.assertEqual(plan(self.folder)["refused"], "not a checkpoint")

    def test_refuses_files_without_dict_of_tensors(self):
        for value, message in [
                (torch.nn.Linear(2, 2), "is an object of torch.nn.modules.linear.Linear, not a dict of tensors; save its "
                                        r"state_dict\(\)"),
                (torch.ones(2), "is not a dict of tensors"),
                ([torch.ones(2)], "is not a dict of tensors"),
                ({}, "has no tensors at its root")]:
            self.assertRegex(plan(self.saved(value))["refused"], message)

    def test_refuses_files_of_before_pytorch_1_6(self):
        path = self.saved({"a": torch.ones(2)}, _use_new_zipfile_serialization=False)
        self.assertRegex(plan(path)["refused"], "is not a zip archive.*load the file and save it again")


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(5, 7)  # dimensions that no number of ranks divides
        self.down = torch.nn.Linear(7, 1)
        self.register_buffer("seen", torch.tensor([3, 4]))

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


class App(Stateful):
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optim": optimizer}

    def load_state_dict(self, state):
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])


def trained():
    torch.manual_seed(1)
    model = Model()
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(3):
        model(torch.randn(4, 5)).sum().backward()
        optimizer.step()
    return model, optimizer


def write_trained(folder):
    """Saves the same training with two ranks in the form of each program."""
    model, optimizer = trained()
    weights, state = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optim": state, "step": 12, "extra": [1, 2]}, checkpoint_id=folder + "/get_state_dict")
    flat = get_state_dict(model, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=True))[1]
    dcp.save({**weights, "optimizer": flat, "train_state": {"step": torch.tensor(12, dtype=torch.int32)}},
             checkpoint_id=folder + "/torchtitan")
    dcp.save({"app": App(model, optimizer)}, checkpoint_id=folder + "/app")
    whole = {"module." + name: tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
             for name, tensor in weights.items()}
    dcp.save(whole, checkpoint_id=folder + "/plain")

    from accelerate.utils import FullyShardedDataParallelPlugin, fsdp_utils
    fsdp_utils.logger = logging.getLogger("accelerate")  # because accelerate's own logger needs an Accelerator
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, state_dict_type="SHARDED_STATE_DICT")
    accelerator = types.SimpleNamespace(num_processes=2, process_index=dist.get_rank(), is_fsdp2=True)
    fsdp_utils.save_fsdp_model(plugin, accelerator, model, folder + "/accelerate")
    fsdp_utils.save_fsdp_optimizer(plugin, accelerator, optimizer, model, folder + "/accelerate")


def write_divided(folder):
    """Saves tensors that are divided in many ways, from four ranks in a mesh of 2 x 2."""
    mesh = init_device_mesh("cpu", (2, 2))
    tensors = {}
    for i, (shape, placements, dtype) in enumerate([
            ((6, 5), (Shard(0), Shard(1)), torch.float32),
            ((6, 5), (Shard(1), Shard(0)), torch.bfloat16),
            ((7, 3), (Shard(0), Shard(0)), torch.float32),
            ((3, 9), (Replicate(), Shard(1)), torch.float16),
            ((4, 5, 6), (Shard(1), Shard(2)), torch.float32),
            ((2, 3, 4, 5), (Shard(1), Shard(3)), torch.int64),
            ((1, 3), (Shard(0), Shard(1)), torch.float64),
            ((3,), (Shard(0), Shard(0)), torch.uint8),
            ((0, 4), (Shard(1), Replicate()), torch.float32)]):
        torch.manual_seed(i)
        tensors[f"t{i}"] = distribute_tensor((torch.randn(shape) * 100).to(dtype), mesh, placements)
    tensors["whole"] = torch.arange(12.).view(3, 4)
    tensors["transposed"] = torch.arange(12.).view(3, 4).t()
    tensors["slice"] = torch.arange(100.)[10:20:3]
    tensors["number"] = torch.tensor(2.5)
    tensors["flags"] = torch.tensor([True, False])
    dcp.save(tensors, checkpoint_id=folder + "/divided")


def run_ranks(world, function, folder):
    def rank_main(rank):
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), GLOO_SOCKET_IFNAME="lo")
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"file://{folder}/store{world}", rank=rank, world_size=world)
        function(folder)
        dist.barrier()
        dist.destroy_process_group()

    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=rank_main, args=(rank,)) for rank in range(world)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(120)
        assert rank.exitcode == 0, rank.exitcode


def state_tensors(state):
    """Returns the tensors of an optimizer's state dict, with the names that dslaunch gives them."""
    return {f"optimizer/{kind}/{name}": shown(tensor) for name, tensors in state.items()
            for kind, tensor in tensors.items() if kind != "step"}


def to_torch_save(folder):
    with tempfile.NamedTemporaryFile() as file:
        dcp_to_torch_save(folder, file.name)
        return torch.load(file.name, weights_only=False)


class DistributedCheckpointTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.saved = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.saved)
        run_ranks(2, write_trained, cls.saved)
        run_ranks(4, write_divided, cls.saved)

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def plan_of(self, name, **options):
        result = plan(os.path.join(self.saved, name), **options)
        self.assertNotIn("refused", result)
        self.assertEqual(result["missing"], [])
        return result

    def assert_training(self, result, weights, state):
        expected = {name: shown(tensor) for name, tensor in weights.items()}
        expected.update(state_tensors(state))
        self.assertEqual(len(expected), 5 + 2 * 4)
        self.assertEqual(result["tensors"], expected)
        self.assertEqual(result["optimizer_updates"], 3)

    def test_reads_get_state_dict(self):
        whole = to_torch_save(self.saved + "/get_state_dict")
        result = self.plan_of("get_state_dict")
        self.assert_training(result, whole["model"], whole["optim"]["state"])
        self.assertEqual(result["step"], 12)
        self.assertIn("names are without model.", result["notes"])
        self.assertRegex(" ".join(result["notes"]), r"\d+ values that are not tensors were not read, such as ")

    def test_reads_torchtitan(self):
        whole = to_torch_save(self.saved + "/torchtitan")
        state = {}
        for key, tensor in whole["optimizer"].items():
            if key.startswith("state."):
                name, kind = key.removeprefix("state.").rsplit(".", 1)
                state.setdefault(name, {})[kind] = tensor
        weights = {name: tensor for name, tensor in whole.items() if isinstance(tensor, torch.Tensor)}
        result = self.plan_of("torchtitan")
        self.assert_training(result, weights, state)
        self.assertEqual(result["step"], 12)

    def test_reads_app_state(self):
        whole = to_torch_save(self.saved + "/app")["app"]
        result = self.plan_of("app")
        self.assert_training(result, whole["model"], whole["optim"]["state"])
        self.assertEqual(result["step"], 3)

    def test_reads_accelerate(self):
        model = to_torch_save(self.saved + "/accelerate/pytorch_model_fsdp_0")["model"]
        optimizer = to_torch_save(self.saved + "/accelerate/optimizer_0")["optimizer"]
        result = self.plan_of("accelerate")
        self.assert_training(result, model, optimizer["state"])
        self.assertIn("optimizer_0/__0_0.distcp", result["files"])

    def test_reads_state_dict(self):
        whole = to_torch_save(self.saved + "/plain")
        result = self.plan_of("plain")
        self.assertEqual(result["tensors"],
                         {name.removeprefix("module."): shown(tensor) for name, tensor in whole.items()})

    def test_reads_tensors_divided_in_two_dimensions(self):
        whole = to_torch_save(self.saved + "/divided")
        self.assertEqual(len(whole), 14)
        self.assertEqual(self.plan_of("divided")["tensors"], {name: shown(tensor) for name, tensor in whole.items()})

    def test_prefix_chooses_tensors(self):
        whole = to_torch_save(self.saved + "/get_state_dict")
        result = self.plan_of("get_state_dict", prefix="model.up.")
        self.assertEqual(result["tensors"], {name: shown(whole["model"]["up." + name]) for name in ("weight", "bias")})

    def copied(self, name="get_state_dict"):
        folder = os.path.join(self.folder, name)
        shutil.copytree(os.path.join(self.saved, name), folder, dirs_exist_ok=True)
        return folder

    def test_missing_file_leaves_out_its_tensors(self):
        folder = self.copied()
        os.remove(folder + "/__1_0.distcp")
        result = plan(folder)
        self.assertEqual(result["missing"], ["__1_0.distcp"])
        self.assertNotIn("up.weight", result["tensors"])

    def test_refuses_interrupted_save(self):
        folder = self.copied()
        os.remove(folder + "/.metadata")
        self.assertRegex(plan(folder)["refused"], "has no .metadata, which is written last: the save was interrupted")

    def refusal(self, change):
        """Returns the refusal of a checkpoint whose metadata was changed by change(metadata)."""
        folder = self.copied()
        with open(folder + "/.metadata", "rb") as file:
            metadata = pickle.load(file)
        change(metadata)
        with open(folder + "/.metadata", "wb") as file:
            pickle.dump(metadata, file)
        return plan(folder)["refused"]

    def test_refuses_impossible_metadata(self):
        index = MetadataIndex("model.up.weight", [0, 0])

        def store(**fields):
            def change(metadata):
                metadata.storage_data[index] = dataclasses.replace(metadata.storage_data[index], **fields)
            return change

        def chunk(**fields):
            def change(metadata):
                chunks = metadata.state_dict_metadata["model.up.weight"].chunks
                chunks[0] = dataclasses.replace(chunks[0], **fields)
            return change

        def size(*sizes):
            def change(metadata):
                metadata.state_dict_metadata["model.up.weight"].size = torch.Size(sizes)
            return change

        def overlap(metadata):
            chunks = metadata.state_dict_metadata["model.up.weight"].chunks
            chunks[1] = ChunkStorageMetadata(chunks[1].offsets, torch.Size([4, 5]))
            metadata.state_dict_metadata["model.up.weight"].size = torch.Size([8, 5])
            chunks[0] = ChunkStorageMetadata(torch.Size([0, 0]), torch.Size([5, 5]))

        def other_class(metadata):
            metadata.storage_data[index] = metadata.state_dict_metadata["model.up.bias"]

        for change, message in [
                (store(relative_path="../x"), "'../x', which is not the name of a file in the folder"),
                (store(relative_path="/etc/passwd"), "'/etc/passwd', which is not the name of a file"),
                (store(relative_path="a/b"), "'a/b', which is not the name of a file"),
                (store(offset=-1), "impossible place"),
                (store(offset=2 ** 63 - 1, length=2 ** 63 - 1), "impossible place"),
                (store(offset=2 ** 63), "has no relative_path, offset and length"),
                (store(offset=2 ** 62), "ends before byte"),
                (store(length=0), "impossible place"),
                (store(offset=1), "is stored in bytes of __0_0.distcp that "),
                (store(transform_descriptors=["zstd"]), r"was transformed as it was saved \(zstd\)"),
                (other_class, "has no relative_path, offset and length"),
                (chunk(sizes=torch.Size([2 ** 62, 5])), "has another shape or dtype in |beyond its shape"),
                (chunk(offsets=torch.Size([1, 0])), "has a part without a place in storage_data"),
                (size(2 ** 62, 2 ** 62), "too large"),
                (size(9, 5), "lacks 10 of its elements"),
                (size(7, 5, 1), "beyond its shape"),
                (overlap, "has another shape|overlap"),
                (lambda metadata: metadata.storage_data.pop(index), "has a part without a place")]:
            with self.subTest(message):
                self.assertRegex(self.refusal(change), message)

    def test_runs_no_code_of_metadata(self):
        class Code:
            def __reduce__(self):
                return os.mkdir, (target,)

        target = os.path.join(self.folder, "ran")

        def change(metadata):
            metadata.planner_data = Code()

        folder = self.copied()
        with open(folder + "/.metadata", "rb") as file:
            metadata = pickle.load(file)
        change(metadata)
        with open(folder + "/.metadata", "wb") as file:
            pickle.dump(metadata, file)
        self.assertIn("tensors", plan(folder))
        self.assertFalse(os.path.exists(target))

    def written(self):
        """Returns a folder that dslaunch wrote from the get_state_dict checkpoint."""
        out = os.path.join(self.folder, "written")
        self.plan_of("get_state_dict", distributed=out)
        return out

    def test_pytorch_reads_written_folder(self):
        expected = to_torch_save(self.saved + "/get_state_dict")
        whole = to_torch_save(self.written())
        self.assertEqual(set(whole), {"model", "optimizer", "step"})
        self.assertEqual(whole["step"], 12)
        for name, tensor in expected["model"].items():
            self.assertTrue(torch.equal(whole["model"][name], tensor), name)
        self.assertEqual(set(whole["optimizer"]["state"]), set(expected["optim"]["state"]))
        for name, tensors in expected["optim"]["state"].items():
            for kind, tensor in tensors.items():
                self.assertTrue(torch.equal(whole["optimizer"]["state"][name][kind], tensor), (name, kind))

    def test_reads_what_it_wrote(self):
        first, again = self.plan_of("get_state_dict"), plan(self.written())
        for key in ("tensors", "step", "optimizer_updates"):
            self.assertEqual(again[key], first[key])

    def test_fsdp_loads_written_folder(self):
        out = self.written()

        def load(folder):
            expected, saved_optimizer = trained()
            torch.manual_seed(2)
            model = Model()
            fully_shard(model)
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
            weights, state = get_state_dict(model, optimizer)
            loaded = {"model": weights, "optimizer": state}
            dcp.load(loaded, checkpoint_id=out, planner=DefaultLoadPlanner(allow_partial_load=True))
            set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)
            for net, steps in ((expected, saved_optimizer), (model, optimizer)):
                steps.zero_grad()
                net(torch.ones(4, 5)).sum().backward()
                steps.step()
            for ours, theirs in zip(model.parameters(), expected.parameters()):
                assert torch.equal(ours.full_tensor(), theirs.full_tensor())

        run_ranks(2, load, self.folder)


if __name__ == "__main__":
    unittest.main()
