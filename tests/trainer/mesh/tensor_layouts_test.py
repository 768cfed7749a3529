"""Tests that ranks that divide the layers of a model compute the same as one process, with any replicas, stages and
ZeRO stage."""

import json
import os
import re
import shutil
import signal
import unittest

from safetensors.torch import load_file

from parity_test import OPTIMIZERS, PRECISIONS, deviation
from pipeline_test import DECODERS, GPT2, PipelineCase
from spawn import TRAIN, Job, assert_killed_and_lost, run, start_once
from table import all_cells, pairwise_cells
from zero_test import SMALL

BAD_INPUT, PREEMPTED = 65, 85
FULL = os.environ.get("DSLAUNCH_TEST_FULL") == "1"
# No dropout, because dropout inside of divided layers draws other numbers than in one process.
MODELS = {"gpt2": {**GPT2, "n_head": 4}, "llama": DECODERS["llama"], "qwen3": DECODERS["qwen3"]}
FACTORS = {
    "tensor": (1, 2, 4),
    "zero": (0, 1, 2, 3),
    "stages": (1, 2),
    "model": tuple(MODELS),
    "precision": ("fp32", "bf16"),
    "sequence_parallel": (False, True),
    "recomputes": (False, True),
    "micro_batches": (1, 2),
}
# Sums over parts are added in another order than in one product, and in bf16 each sum is rounded.
WITHIN = {"fp32": (1e-6, 2e-6), "bf16": (1e-3, 2e-2)}
# (stages, replicas, parts, ZeRO stage)
LAYOUTS = ((1, 1, 1, 0), (1, 2, 2, 0), (1, 2, 2, 3), (2, 1, 2, 1), (1, 1, 4, 0), (1, 2, 1, 3))


def tensor_parallel(parts, zero=0, stages=1, micro_batches=1, recomputes=False, **keys):
    engine = {"gradient_accumulation_steps": micro_batches, "zero_optimization": {"stage": zero, **SMALL},
              "tensor_parallel": {"autotp_size": parts, **keys}}
    if stages > 1:
        engine["pipeline"] = {"stages": stages, "activation_checkpoint_interval": int(recomputes)}
    elif recomputes:
        engine["activation_checkpointing"] = {"number_checkpoints": 3}
    return engine


class TensorParallelCase(PipelineCase):
    def assert_near(self, metrics, steps, precision="fp32"):
        loss, at_loss = deviation(metrics, steps, "loss")
        norm, at_norm = deviation(metrics, steps, "grad_norm")
        print("loss within %.1e (step %d), grad_norm within %.1e (step %d)" % (loss, at_loss, norm, at_norm), flush=True)
        self.assertLess(loss, WITHIN[precision][0])
        self.assertLess(norm, WITHIN[precision][1])


class ParityTest(TensorParallelCase):
    def test_table_matches_one_process(self):
        cells = (all_cells if FULL else pairwise_cells)(FACTORS)
        print("%d cells%s" % (len(cells), "" if FULL else ", every pair; DSLAUNCH_TEST_FULL=1 runs all"), flush=True)
        for cell in cells:
            parts, stages, precision = cell["tensor"], cell["stages"], cell["precision"]
            common = {**OPTIMIZERS["adamw_clipped"], **PRECISIONS[precision]}
            layout = {key: cell[key] for key in ("zero", "stages", "micro_batches", "recomputes")}
            engine = {**common, **tensor_parallel(parts, sequence_parallel=cell["sequence_parallel"], **layout)}
            replicas = 2 if 2 * parts * stages <= (8 if FULL else 4) else 1
            with self.subTest(cell=cell):
                print(" ".join(map(str, cell.values())), end=": ", flush=True)
                steps = 20 if FULL else 8
                self.assert_near(
                    self.metrics(engine, parts * stages * replicas, model=MODELS[cell["model"]], steps=steps),
                    self.reference({**common, "gradient_accumulation_steps": cell["micro_batches"]},
                                   model=MODELS[cell["model"]], steps=steps), precision)

    def test_lamb_and_loss_scale_match_one_process(self):
        lamb = {"optimizer": {"type": "Lamb", "params": {"lr": 0.01}}, "gradient_clipping": 0.1}
        for keys, precision in ((lamb, "fp32"), ({**OPTIMIZERS["adamw_clipped"], **PRECISIONS["fp16"]}, "bf16")):
            with self.subTest(keys=keys):
                self.assert_near(self.metrics({**keys, **tensor_parallel(2, zero=1)}, 4, model=MODELS["llama"]),
                                 self.reference(keys, model=MODELS["llama"]), precision)

    def test_offloaded_states_match_one_process(self):
        cpu, files = {"device": "cpu"}, {"device": "nvme", "nvme_path": self.folder}
        for zero, places in ((1, {"offload_optimizer": cpu}), (3, {"offload_optimizer": cpu, "offload_param": cpu}),
                             (3, {"offload_optimizer": files, "offload_param": files})):
            engine = {**OPTIMIZERS["adamw_clipped"], **tensor_parallel(2, zero)}
            engine["zero_optimization"].update(places)
            with self.subTest(zero=zero, **places):
                self.assert_near(self.metrics(engine, 4, model=MODELS["llama"]),
                                 self.reference(OPTIMIZERS["adamw_clipped"], model=MODELS["llama"]))

    def test_compares_replicas_and_whole_weights(self):
        self.assert_near(self.metrics(tensor_parallel(2, zero=1), 4, model=MODELS["llama"], check_replicas_every=2),
                         self.reference({}, model=MODELS["llama"]))

    def test_recomputation_repeats_dropout(self):
        model = {**MODELS["gpt2"], "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1}
        for sequence_parallel in (False, True):
            keys = {"sequence_parallel": sequence_parallel}
            with self.subTest(**keys):
                self.assert_same(self.metrics(tensor_parallel(2, zero=3, recomputes=True, **keys), 2, model=model),
                                 self.metrics(tensor_parallel(2, **keys), 2, model=model))


class CheckpointTest(TensorParallelCase):
    def test_any_layout_loads_checkpoint_of_any_other(self):
        model = MODELS["llama"]

        def engine(layout):
            stages, _, parts, zero = layout
            return {**OPTIMIZERS["adamw_clipped"], **tensor_parallel(parts, zero, stages, micro_batches=2)}

        def ranks(layout):
            return layout[0] * layout[1] * layout[2]

        steps = self.reference({**OPTIMIZERS["adamw_clipped"], "gradient_accumulation_steps": 2}, model=model)
        saved = {}
        for layout in LAYOUTS:
            saved[layout] = os.path.join(self.folder, "saved-%d-%d-%d-%d" % layout)
            self.metrics(engine(layout), ranks(layout), steps=5, model=model, checkpoint_dir=saved[layout])
        for i, first in enumerate(LAYOUTS):
            for second in LAYOUTS if FULL else (LAYOUTS[i - 1],):
                with self.subTest(saved=first, loaded=second):
                    copy = saved[first] + "-copy"
                    shutil.copytree(saved[first], copy)
                    metrics = self.metrics(engine(second), ranks(second), model=model, checkpoint_dir=copy)
                    shutil.rmtree(copy)
                    self.assertEqual([step["step"] for step in metrics], [6, 7, 8, 9, 10])
                    for got, wanted in zip(metrics, steps[5:]):
                        self.assertLess(abs(got["loss"] / wanted["loss"] - 1), WITHIN["fp32"][0])

    def test_evaluates_predicts_and_exports_trained_model(self):
        folder, exported = os.path.join(self.folder, "kept"), os.path.join(self.folder, "exported")
        for name in ("gpt2", "qwen3"):
            model = MODELS[name]
            for path in folder, exported:
                shutil.rmtree(path, ignore_errors=True)
            ranks = run(self.recipe(tensor_parallel(2, zero=3), steps=2, model=model, checkpoint_dir=folder,
                                    export_hf=exported), 4)
            self.assertEqual([(rank.code, rank.err) for rank in ranks], [(0, "")] * 4)
            tested = self.metrics_of_test(ranks)
            lines = []
            for engine, world in ((tensor_parallel(2), 4), (tensor_parallel(2, stages=2), 4), ({}, 1)):
                given = self.recipe(engine, model=model, checkpoint_dir=folder, mode="evaluate")
                self.assertNear(self.metrics_of_test(self.succeeds(given, world)), tested)
                file = os.path.join(self.folder, "predictions")
                self.succeeds(self.recipe(engine, model=model, checkpoint_dir=folder, mode="predict",
                                          predictions=file), world)
                with open(file) as predictions:
                    lines.append([json.loads(line)["prediction"] for line in predictions])
                lines[-1].append(self.succeeds(self.recipe(
                    engine, model=model, checkpoint_dir=folder, mode="predict", prompt="Once", max_new_tokens=5,
                    temperature=0), world)[0].out)
            self.assertEqual(lines[0], lines[2])
            self.assertEqual(lines[1], lines[2])
            # The export has whole tensors, so every layout can start from it.
            alone = self.metrics({}, 1, model=model, steps=2, init_weights=exported)
            for zero in (0, 3):
                self.assert_near(self.metrics(tensor_parallel(2, zero), 4, model=model, steps=2, init_weights=exported),
                                 alone)
            again = os.path.join(self.folder, "again")
            shutil.rmtree(again, ignore_errors=True)
            self.succeeds(self.recipe({}, model=model, checkpoint_dir=folder, steps=2, export_hf=again), 1)
            wanted = load_file(os.path.join(again, "model.safetensors"))
            got = load_file(os.path.join(exported, "model.safetensors"))
            self.assertEqual(set(got), set(wanted))
            for key, tensor in wanted.items():
                self.assertTrue(got[key].equal(tensor), key)

    def test_tools_read_checkpoints_of_parts(self):
        """Tests verify, diff and convert, and that an older program reads none of this format."""
        folders = {}
        for parts in (1, 2):
            folders[parts] = os.path.join(self.folder, "tools-%d" % parts)
            self.succeeds(self.recipe(tensor_parallel(parts, zero=1), steps=2, model=MODELS["gpt2"],
                                      checkpoint_dir=folders[parts]), 2 * parts)
        for parts, folder in folders.items():
            self.tool("verify", folder)
            with open(os.path.join(folder, "step_000002", "manifest.json")) as file:
                self.assertEqual("checkpoint 2" in file.read(), parts == 2)
        tags = [os.path.join(folder, "step_000002") for folder in folders.values()]
        names = {}
        for tag in tags:
            out = tag + "-hf"
            self.tool("convert", tag, out)
            names[tag] = load_file(os.path.join(out, "model.safetensors"))
        whole, part = (names[tag] for tag in tags)
        self.assertEqual({name: tensor.shape for name, tensor in part.items()},
                         {name: tensor.shape for name, tensor in whole.items()})
        for name, tensor in whole.items():
            self.assertLess((part[name] - tensor).abs().max().item(), 1e-4, name)
        self.tool("diff", tags[1], tags[1])

    def tool(self, *words):
        done = start_once.run([TRAIN, "checkpoint", *words])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def succeeds(self, recipe, world):
        ranks = run(recipe, world)
        self.assertEqual([rank.code for rank in ranks], [0] * world, ranks[0].err)
        return ranks

    def metrics_of_test(self, ranks):
        return [float(number) for number in re.findall(r"[\d.]+", re.search(r"test.*", ranks[0].out)[0])]

    def assertNear(self, got, wanted):
        self.assertEqual(len(got), len(wanted))
        for one, other in zip(got, wanted):
            self.assertAlmostEqual(one, other, delta=2e-3)


class PlanTest(TensorParallelCase):
    def test_plans_memory_of_a_part(self):
        def planned(parts, **keys):
            given = self.recipe(tensor_parallel(parts, **keys), model=MODELS["llama"], mode="plan_memory",
                                ranks=2 * parts)
            rank = run(given, 1)[0]
            self.assertEqual((rank.code, rank.err), (0, ""))
            self.assertNotIn("not estimated", rank.out)
            scale = {"B": 1, "KiB": 2 ** 10, "MiB": 2 ** 20}
            return {name: float(size) * scale[unit]
                    for name, size, unit in re.findall(r"(?m)^  ([a-z ]+?) +([\d.]+) (B|KiB|MiB)$", rank.out)}

        whole, part = planned(1), planned(2)
        self.assertLess(part["parameters"], 0.6 * whole["parameters"])
        self.assertLess(part["passes"], 0.8 * whole["passes"])
        tokens = planned(2, sequence_parallel=True)
        self.assertLess(tokens["passes"], part["passes"])


class MistakesTest(TensorParallelCase):
    def test_reports_mistakes_in_configuration(self):
        model = MODELS["llama"]
        self.refused(self.recipe(tensor_parallel(3), model=model), "autotp_size", "3", ranks=3)
        self.refused(self.recipe(tensor_parallel(4), model=model), "does not divide 2 ranks")
        self.refused(self.recipe({**tensor_parallel(2), "cuda_graph": True}, model=model), "tensor_parallel")
        self.refused(self.recipe({**tensor_parallel(2), "parallel": {"mode": "powersgd"}}, model=model),
                     "tensor_parallel", ranks=4)
        self.refused(self.recipe({**tensor_parallel(2, stages=2), "pipeline": {"stages": 2, "rank_order": "data_pipe"}},
                                 model=model), "data_pipe", ranks=4)
        self.refused(self.recipe(tensor_parallel(2, partition_config={"layer_specs": []}), model=model),
                     "partition_config")
        mlp = self.recipe(tensor_parallel(2), model={"type": "mlp"})
        mlp["data"] = {"type": "idx", "path": self.folder}
        self.refused(mlp, "autotp_size", "mlp")

    def test_parts_are_on_one_node_unless_allowed(self):
        """Runs on two nodes with one rank each."""
        given = self.recipe(tensor_parallel(2), model=MODELS["llama"], steps=2)
        for rank in run(given, 2, 1):
            self.assertEqual(rank.code, BAD_INPUT, rank.err)
            self.assertIn("allow_across_nodes", rank.err)
        allowed = self.recipe(tensor_parallel(2, allow_across_nodes=True), model=MODELS["llama"], steps=2)
        self.assertEqual([rank.code for rank in run(allowed, 2, 1)], [0, 0])

    def test_ranks_exit_when_one_of_a_group_is_killed(self):
        for zero, victim in ((0, 1), (3, 0), (3, 3)):
            given = self.recipe(tensor_parallel(2, zero), steps=100000, model=MODELS["llama"])
            with self.subTest(zero=zero, victim=victim), Job(given, 4) as job:
                job.wait_for(lambda: "step" in job.read(0, 2), 60, "steps are made")
                job.processes[victim].send_signal(signal.SIGKILL)
                assert_killed_and_lost(self, job.finish(30), victim)

    def test_all_ranks_stop_when_one_of_a_group_is_asked_to(self):
        """Also tests ranks that are evaluating."""
        folder = os.path.join(self.folder, "stopped")
        given = self.recipe(tensor_parallel(2), steps=100000, model=MODELS["llama"], checkpoint_dir=folder, eval_every=1)
        for victim in (0, 1, 3):
            with self.subTest(victim=victim), Job(given, 4) as job:
                job.wait_for(lambda: "step" in job.read(0, 2), 60, "steps are made")
                job.processes[victim].send_signal(signal.SIGTERM)
                for rank in job.finish(60):
                    self.assertEqual(rank.code, PREEMPTED, rank.err)


if __name__ == "__main__":
    unittest.main()
