"""Compares plans of DeepSpeed's checkpoints with DeepSpeed's own converters.

DeepSpeed trains a small model for three steps and saves it. It does so at each ZeRO stage, on 1 to 4 ranks, in each
dtype and with each feature that changes the layout. Every tensor must have the same bytes as the output of zero_to_fp32
and ds_to_universal. Frozen parameters, which zero_to_fp32 loses at stage 1, and stage 0, which it does not read, are
compared with the ranks' memory. DSLAUNCH_TEST_FULL=1 runs all combinations, with every DeepSpeed that
packaging/fetch-deepspeed has made."""

import glob
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest
import zlib

from table import pairwise_cells

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PLANS = os.environ["DSLAUNCH_FOREIGN_PLANS"]
FULL = os.environ.get("DSLAUNCH_TEST_FULL") == "1"
PYTHON = pathlib.Path(os.environ.get("DSLAUNCH_DEEPSPEED_PYTHON", ROOT / ".deps" / "deepspeed" / "bin" / "python3"))
OTHERS = [pathlib.Path(python) for python in sorted(glob.glob(str(ROOT / ".deps" / "deepspeed-*" / "bin" / "python3")))]
MISSING = f"{PYTHON} does not exist; packaging/fetch-deepspeed makes it"

STEPS = 3
TWINS = {"elastic_checkpoint", "round_robin_gradients"}  # features that change the layout but not the training
FEATURES = {"tied", "frozen", "groups", "sub_groups", "alignment", "offload"}
DTYPE_NAMES = {"F32": "fp32", "F16": "fp16", "BF16": "bf16"}


def possible(cell):
    """Returns the cell without features that do not exist at its stage."""
    unknown = set()
    if cell["stage"] != 3:
        unknown.add("sub_groups")
    if cell["stage"] not in (1, 2):
        unknown.add("alignment")
    if cell["stage"] == 0:
        unknown.add("offload")
    return {key: value for key, value in cell.items() if value and key not in unknown or key in ("stage", "world")}


def unique(cells):
    return [json.loads(text) for text in dict.fromkeys(json.dumps(cell, sort_keys=True) for cell in cells)]


def matrix():
    base = {"stage": [3, 2, 1, 0], "world": [1, 2, 3, 4], "dtype": ["bf16", "fp32", "fp16"]}
    if not FULL:
        cells = pairwise_cells({**base, **{feature: [True, False] for feature in sorted(FEATURES)}})
    else:
        cells = []
        for chosen in [set(), *({feature} for feature in sorted(FEATURES)), FEATURES]:
            cells += [{"stage": stage, "world": world, "dtype": dtype, **{feature: True for feature in chosen}}
                      for stage in base["stage"] for world in base["world"] for dtype in base["dtype"]]
    return unique(map(possible, cells))


def special():
    """Returns cases for layouts that few checkpoints have."""
    return [
        # BF16_Optimizer, whose files have no zero_stage.
        {"stage": 1, "world": 3, "dtype": "bf16", "from_ranks": True, "accumulate": "fp32", "groups": True, "frozen": True},
        {"stage": 2, "world": 2, "dtype": "bf16", "groups": True},
        {"stage": 2, "world": 2, "dtype": "bf16", "groups": True, "round_robin_gradients": True},
        {"stage": 1, "world": 2, "dtype": "fp16", "groups": True},
        {"stage": 1, "world": 2, "dtype": "fp16", "groups": True, "elastic_checkpoint": True},
        {"stage": 3, "world": 2, "dtype": "bf16", "init": True, "tied": True, "frozen": True},
        {"stage": 3, "world": 2, "dtype": "bf16", "frozen": True, "exclude_frozen": True},
        {"stage": 2, "world": 2, "dtype": "bf16",
         "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True, "adam_w_mode": False}}},
        {"stage": 1, "world": 2, "dtype": "fp32", "from_ranks": True,
         "optimizer": {"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9}}},
        {"stage": 3, "world": 3, "dtype": "fp32", "from_ranks": True, "sub_groups": True,
         "optimizer": {"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9}}},
    ]


def write(python, cases):
    """Makes DeepSpeed write the folders of the cases."""
    run = subprocess.run([python, HERE / "foreign" / "write_deepspeed.py"], input="\n".join(map(json.dumps, cases)), text=True,
                         capture_output=True, timeout=7200)
    if run.returncode != 0:
        raise AssertionError(f"write_deepspeed.py failed:\n{run.stdout[-2000:]}\n{run.stderr[-8000:]}")


def plans(paths):
    """Returns the JSON that dslaunch-foreign-plans prints for each path."""
    run = subprocess.run([PLANS], input="".join(f"{path}\n" for path in paths), text=True, capture_output=True,
                         timeout=300)
    if run.returncode != 0:
        raise AssertionError(f"{PLANS} ended with {run.returncode}: {run.stderr[-2000:]}")
    return [json.loads(line) for line in run.stdout.splitlines()]


def expected_tensors(folder):
    """Returns {name: [dtype, shape, CRC-32]} of the tensors in expected.safetensors."""
    tensors = {}
    with open(os.path.join(folder, "expected.safetensors"), "rb") as file:
        content = file.read()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8:8 + size])
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            tensors[name] = [entry["dtype"], entry["shape"], zlib.crc32(content[8 + size + begin:8 + size + end])]
    return tensors


@unittest.skipUnless(PYTHON.exists(), MISSING)
class DeepSpeedCheckpointsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.cases = []
        for python in [PYTHON, *(OTHERS if FULL else [])]:
            cases = [{**case, "folder": f"{cls.temporary.name}/{len(cls.cases) + i}"}
                     for i, case in enumerate(matrix() + special())]
            write(python, cases)
            cls.cases += cases
        print(f"{len(cls.cases)} checkpoints" + ("" if FULL else "; DSLAUNCH_TEST_FULL=1 writes all"), flush=True)
        cls.plans = dict(zip((case["folder"] for case in cls.cases), plans(case["folder"] for case in cls.cases)))

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def results(self):
        """Returns each case, its plan, and the expected facts other than tensors."""
        return [(case, self.plans[case["folder"]],
                 json.loads(pathlib.Path(case["folder"], "expected.json").read_text())) for case in self.cases]

    def some(self, **wanted):
        """Returns the first case that has the values `wanted`."""
        return next(case for case in self.cases 
                    if all(case.get(key) == value for key, value in wanted.items() if key != "folder"))

    def test_tensors_equal_deepspeeds_converters(self):
        tensors = 0
        for case, plan, _ in self.results():
            with self.subTest(**case):
                self.assertNotIn("refused", plan, plan.get("refused"))
                expected = expected_tensors(case["folder"])
                if not TWINS.isdisjoint(case):  # the converters read only the weights
                    twin = self.some(**{**case, **dict.fromkeys(TWINS)})
                    expected = {**expected_tensors(twin["folder"]), **expected}
                self.assertEqual(expected, plan["tensors"])
                tensors += len(expected)
        print(f"{tensors} tensors", flush=True)

    def test_reads_every_file_and_alias(self):
        for case, plan, expected in self.results():
            with self.subTest(**case):
                self.assertEqual(([], []), (plan["missing"], plan["notes"]))
                self.assertEqual(expected["aliases"], plan["aliases"])
                self.assertEqual(set(os.listdir(os.path.join(case["folder"], f"global_step{STEPS}"))),
                                 set(plan["files"]))

    def test_position_equals_engines(self):
        for case, plan, expected in self.results():
            batch = 2 * case["world"]
            elastic = case.get("elastic_checkpoint")  # checkpoints with elastic_checkpoint have no param_groups
            wanted = {"program": "DeepSpeed " + expected["version"], "tag": f"global_step{STEPS}", "step": STEPS,
                      "samples_seen": STEPS * batch, "train_batch_size": batch, "skipped_steps": 0,
                      "micro_steps": STEPS, "scheduled_updates": expected["scheduled"],
                      "optimizer_updates": expected["updates"],
                      "learning_rates": [] if elastic else expected["rates"],
                      "optimizer": "" if elastic else expected["optimizer"], "world_size": case["world"],
                      "zero_stage": case["stage"], "dtype": case["dtype"], "client_state": {"note": "of the program"}}
            with self.subTest(**case):
                self.assertEqual(wanted, {key: plan[key] for key in wanted})
                if case["dtype"] == "fp16":
                    self.assertEqual(expected["scaler"], plan["loss_scaler"][:len(expected["scaler"])])

    def test_universal_folder_equals_original(self):
        cases = [case for case in self.cases if os.path.isdir(os.path.join(case["folder"], "universal"))]
        self.assertTrue(cases)
        folders = [os.path.join(case["folder"], "universal", f"global_step{STEPS}") for case in cases]
        for case, plan in zip(cases, plans(folders)):
            with self.subTest(**case):
                self.assertNotIn("refused", plan, plan.get("refused"))
                original = self.plans[case["folder"]]
                self.assertEqual(original["tensors"], plan["tensors"])
                for key in ("aliases", "missing", "notes", "step", "optimizer_updates", "scheduled_updates",
                            "learning_rates", "loss_scaler", "optimizer", "world_size", "zero_stage"):
                    self.assertEqual(original[key], plan[key], key)

    def test_reports_missing_rank_and_omits_its_tensors(self):
        for stage in (2, 3):
            case = self.some(stage=stage, world=3)
            folder = os.path.join(self.temporary.name, f"lost-{stage}")
            shutil.copytree(os.path.join(case["folder"], f"global_step{STEPS}"), folder)
            lost = next(name for name in os.listdir(folder) if "pp_rank_1" in name and "optim" in name)
            os.remove(os.path.join(folder, lost))
            [plan] = plans([folder])
            with self.subTest(stage=stage):
                self.assertEqual([lost], plan["missing"])
                whole = self.plans[case["folder"]]["tensors"]
                self.assertLess(len(plan["tensors"]), len(whole))
                self.assertEqual({name: whole[name] for name in plan["tensors"]}, plan["tensors"])

    def test_finds_other_folder_if_latest_was_deleted(self):
        case = self.some(stage=2)
        folder = os.path.join(self.temporary.name, "deleted")
        shutil.copytree(os.path.join(case["folder"], f"global_step{STEPS}"), os.path.join(folder, "global_step3"))
        with open(os.path.join(folder, "latest"), "w") as file:
            file.write("global_step9")
        [plan] = plans([folder])
        self.assertEqual(self.plans[case["folder"]]["tensors"], plan["tensors"])
        self.assertEqual([f"{folder}/latest names 'global_step9', which does not exist; this is 'global_step3'."],
                         plan["notes"])
        shutil.copytree(os.path.join(folder, "global_step3"), os.path.join(folder, "global_step4"))
        [plan] = plans([folder])
        self.assertIn("give one of these folders: 'global_step3', 'global_step4'", plan["refused"])

    def test_refuses_unfinished_file_by_name(self):
        case = self.some(stage=3)
        folder = os.path.join(self.temporary.name, "unfinished")
        shutil.copytree(os.path.join(case["folder"], f"global_step{STEPS}"), folder)
        file = next(pathlib.Path(folder).glob("*optim_states.pt"))
        os.truncate(file, file.stat().st_size // 2)
        [plan] = plans([folder])
        self.assertIn(f"{file}: ", plan["refused"])

    def test_refuses_rank_file_of_another_save(self):
        case, other = self.some(stage=2, world=3), self.some(stage=2, world=2)
        folder = os.path.join(self.temporary.name, "mixed")
        shutil.copytree(os.path.join(case["folder"], f"global_step{STEPS}"), folder)
        stray = next(pathlib.Path(other["folder"]).glob(f"global_step{STEPS}/*_rank_1_*optim_states.pt"))
        mine = next(pathlib.Path(folder).glob("*_rank_1_*optim_states.pt"))
        shutil.copy(stray, mine)
        [plan] = plans([folder])
        self.assertIn(f"{mine}: optimizer_state_dict.partition_count is 2, but 3 in ", plan["refused"])

    def test_refuses_other_layouts_by_name(self):
        case = self.some(stage=2)
        for name, problem in (("mp_rank_01_model_states.pt", "tensor parallelism"),
                              ("layer_0_expert_3_mp_rank_00_model_states.pt", "experts"),
                              ("layer_03-model_00-model_states.pt", "layer numbers"),
                              ("offloaded_tensors", "NVMe")):
            folder = os.path.join(self.temporary.name, problem)
            shutil.copytree(os.path.join(case["folder"], f"global_step{STEPS}"), folder)
            open(os.path.join(folder, name), "w").close()
            [plan] = plans([folder])
            self.assertIn(f"{folder}/{name}: ", plan["refused"])
            self.assertIn(problem, plan["refused"])


if __name__ == "__main__":
    unittest.main()
