"""Tests that a pipeline computes the same as one process, with any stages, schedule, replicas and ZeRO stage."""

import json
import os
import re
import shutil
import signal
import tempfile
import unittest

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from gpt2 import Gpt2
from inputs import write_idx_part, write_text
from parity_test import GRAD_NORM_WITHIN, LOSS_WITHIN, OPTIMIZERS, PRECISIONS, deviation, traces
from spawn import Job, assert_killed_and_lost, assert_refused, run, run_with_metrics
from table import all_cells, pairwise_cells
from zero_test import SMALL

BAD_INPUT = 65
# The model has eight layers: the embedding, six blocks, and the head with the preceding norm.
GPT2 = {"type": "gpt2", "n_layer": 6, "n_head": 2, "n_embd": 16, "n_positions": 16, "vocab_size": 256,
        "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
SAMPLES = 16  # per step
FACTORS = {
    "stages": (1, 2, 4),
    "schedule": ("gpipe", "1f1b", "interleaved", "zb-h1"),
    "micro_batches": (1, 2, 4, 8),
    "zero": (0, 1, 2, 3),
    "replicas": (1, 2),
    "optimizer": ("adamw_clipped", "sgd_not_clipped"),
}
# The decoders have eight layers too. The window of the second half of the layers, or of all layers, is shorter than a
# sample.
DECODER = {"type": "decoder", "vocab_size": 256, "hidden_size": 16, "intermediate_size": 40, "num_hidden_layers": 6,
           "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 16}
DECODERS = {
    "llama": {**DECODER, "model_type": "llama", "attention_bias": True, "mlp_bias": True, "rope_parameters": {
        "rope_type": "llama3", "factor": 4, "original_max_position_embeddings": 8}},
    "mistral": {**DECODER, "model_type": "mistral", "head_dim": 6, "sliding_window": 5, "tie_word_embeddings": True},
    "qwen3": {**DECODER, "model_type": "qwen3", "head_dim": 8, "use_sliding_window": True, "sliding_window": 4,
              "max_window_layers": 3},
}
DECODER_FACTORS = {
    "stages": (1, 2, 4),
    "zero": (0, 1, 2, 3),
    "model": tuple(DECODERS),
    "micro_batches": (1, 4),
    "recomputes": (False, True),
}
# (stages, replicas, ZeRO stage)
LAYOUTS = ((1, 1, 0), (2, 1, 0), (1, 2, 1), (2, 2, 3), (4, 1, 2), (2, 2, 1))


def pipeline(stages, schedule="1f1b", micro_batches=4, zero=0, **keys):
    return {"gradient_accumulation_steps": micro_batches,
            "pipeline": {"stages": stages, "schedule": schedule, "activation_checkpoint_interval": 0, **keys},
            "zero_optimization": {"stage": zero, **SMALL}}


class PipelineCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.text = os.path.join(cls.folder, "text.txt")
        write_text(cls.text, 16 * SAMPLES * GPT2["n_positions"] + 1)
        cls.weights = os.path.join(cls.folder, "gpt2.safetensors")
        torch.manual_seed(3)
        save_file(Gpt2(GPT2).state_dict(), cls.weights)
        write_idx_part(cls.folder, {"train": 512, "t10k": 64})
        cls.alone = {}

    def recipe(self, engine, steps=10, model=GPT2, **run_keys):
        return {"model": model,
                "data": {"type": "text", "path": self.text, "block_size": GPT2["n_positions"], "val_fraction": 0.2},
                "run": {"steps": steps, "seed": 7, **run_keys},
                "engine": {"train_batch_size": SAMPLES, **engine}}

    def metrics(self, engine, ranks=1, **keys):
        return run_with_metrics(self.recipe(engine, **keys), ranks)[1]

    def reference(self, engine, **keys):
        """Returns the metrics of one process without a pipeline. The results are cached."""
        key = json.dumps([engine, keys])
        if key not in self.alone:
            self.alone[key] = self.metrics(engine, **keys)
        return self.alone[key]

    def assert_same(self, metrics, steps, precision="fp32"):
        loss, at_loss = deviation(metrics, steps, "loss")
        norm, at_norm = deviation(metrics, steps, "grad_norm")
        print("loss within %.1e (step %d), grad_norm within %.1e (step %d)" % (loss, at_loss, norm, at_norm), flush=True)
        self.assertLess(loss, LOSS_WITHIN[precision])
        self.assertLess(norm, GRAD_NORM_WITHIN[precision])
        self.assertEqual(traces(metrics), traces(steps))

    def refused(self, wanted, *words, ranks=2):
        assert_refused(self, run(wanted, ranks), BAD_INPUT, *words)


class ParityTest(PipelineCase):
    def test_table_matches_one_process(self):
        full = os.environ.get("DSLAUNCH_TEST_FULL") == "1"
        cells = all_cells(FACTORS) if full else pairwise_cells(FACTORS)
        print("%d cells%s" % (len(cells), "" if full else ", every pair; DSLAUNCH_TEST_FULL=1 runs all"), flush=True)
        for cell in cells:
            if cell["stages"] == 1:  # one stage uses the pipeline engine too
                keys = {"activation_checkpoint_interval": 2}
            else:
                keys = {}
            with self.subTest(cell=cell):
                print(" ".join(map(str, cell.values())), end=": ", flush=True)
                engine = {**OPTIMIZERS[cell["optimizer"]],
                          **pipeline(cell["stages"], cell["schedule"], cell["micro_batches"], cell["zero"], **keys)}
                # The reference sums over micro-batches in the same order.
                alone = {**OPTIMIZERS[cell["optimizer"]], "gradient_accumulation_steps": cell["micro_batches"]}
                self.assert_same(
                    self.metrics(engine, cell["stages"] * cell["replicas"], init_weights=self.weights),
                    self.reference(alone, init_weights=self.weights))

    def test_decoders_match_one_process(self):
        """Runs 20 steps with two replicas, or with one if there are four stages."""
        full = os.environ.get("DSLAUNCH_TEST_FULL") == "1"
        for cell in (all_cells if full else pairwise_cells)(DECODER_FACTORS):
            stages, model, recomputes = cell["stages"], DECODERS[cell["model"]], cell["recomputes"]
            alone = {**OPTIMIZERS["adamw_clipped"], "gradient_accumulation_steps": cell["micro_batches"]}
            if stages == 1:
                engine = {**alone, "zero_optimization": {"stage": cell["zero"], **SMALL},
                          "activation_checkpointing": {"number_checkpoints": 3 if recomputes else 0}}
            else:
                engine = {**alone, **pipeline(stages, "1f1b", cell["micro_batches"], cell["zero"],
                                              activation_checkpoint_interval=int(recomputes))}
            with self.subTest(cell=cell):
                print(" ".join(map(str, cell.values())), end=": ", flush=True)
                replicas = 1 if stages == 4 and not full else 2
                self.assert_same(self.metrics(engine, stages * replicas, model=model, steps=20),
                                 self.reference(alone, model=model, steps=20))

    def test_every_precision_matches_one_process(self):
        for precision in ("bf16", "fp16"):
            for zero in (0, 1, 3):
                with self.subTest(precision=precision, zero=zero):
                    alone = {**PRECISIONS[precision], "gradient_accumulation_steps": 2}
                    self.assert_same(self.metrics({**PRECISIONS[precision], **pipeline(2, "1f1b", 2, zero)}, 2),
                                     self.reference(alone), precision)

    def test_every_model_matches_one_process(self):
        images = {"type": "idx", "path": self.folder}
        for kind in ("mlp", "cnn", "resnet18"):
            for schedule in ("1f1b", "zb-h1"):
                with self.subTest(model=kind, schedule=schedule):
                    def losses(engine, ranks):
                        wanted = self.recipe({"optimizer": {"type": "SGD", "params": {"lr": 0.05}}, **engine}, steps=3,
                                             model={"type": kind})
                        wanted["data"] = images
                        return run_with_metrics(wanted, ranks)[1]
                    self.assertLess(deviation(losses(pipeline(2, schedule, 2), 2),
                                              losses({"gradient_accumulation_steps": 2}, 1), "loss")[0], 1e-6)

    def test_every_partition_and_order_of_ranks_matches(self):
        for keys in ({"partition": "uniform"}, {"partition": "type:h\\."}, {"partition": "profile"},
                     {"rank_order": "data_pipe"}, {"seed_layers": True}):
            with self.subTest(**keys):
                self.assert_same(self.metrics(pipeline(2, **keys), 4, steps=3),
                                 self.reference({"gradient_accumulation_steps": 4}, steps=3))

    def test_weighs_each_token_equally(self):
        self.assert_same(self.metrics(pipeline(2), 4, loss_normalization="tokens"),
                         self.reference({"gradient_accumulation_steps": 4}, loss_normalization="tokens"))


class DropoutTest(PipelineCase):
    def test_recomputation_and_stages_repeat_dropout(self):
        model = dict(GPT2, resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1)
        without = self.metrics(pipeline(2), 2, model=model)
        for stages, interval in ((2, 1), (2, 3), (4, 1), (1, 2)):
            with self.subTest(stages=stages, interval=interval):
                self.assert_same(
                    self.metrics(pipeline(stages, activation_checkpoint_interval=interval), stages, model=model), without)
        still = self.metrics(pipeline(2), 2)
        self.assertNotAlmostEqual(without[0]["loss"], still[0]["loss"], places=5)

    def test_every_layout_drops_same_units_as_one_process(self):
        model = dict(GPT2, resid_pdrop=0.1, embd_pdrop=0.2, attn_pdrop=0.1)
        micro_batches = {"gradient_accumulation_steps": 4}
        alone = self.reference(micro_batches, model=model)
        layouts = {
            "number_checkpoints": ({**micro_batches, "activation_checkpointing": {"number_checkpoints": 3}}, 1),
            "interval": (pipeline(1, activation_checkpoint_interval=2), 1),
            "2 stages": (pipeline(2), 2),
            "4 stages, interval": (pipeline(4, activation_checkpoint_interval=1), 4),
            "interleaved": (pipeline(2, "interleaved", virtual_stages=2), 2),
            "zb-h1": (pipeline(2, "zb-h1"), 2),
            "gpipe at ZeRO 1": (pipeline(2, "gpipe", zero=1), 2),
        }
        for name, (engine, ranks) in layouts.items():
            with self.subTest(layout=name):
                self.assert_same(self.metrics(engine, ranks, model=model), alone)

    def test_replicas_and_resumed_runs_drop_same_units(self):
        model = dict(GPT2, resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1)
        whole = self.metrics({"gradient_accumulation_steps": 4}, 2, model=model)
        for engine, ranks in (pipeline(2), 4), (pipeline(2, zero=3), 4), (
                {"gradient_accumulation_steps": 4, "zero_optimization": {"stage": 3, **SMALL}}, 2):
            with self.subTest(engine=engine):
                self.assert_same(self.metrics(engine, ranks, model=model), whole)
        # The run is started by one process and continued by two stages, and the other way round.
        alone, stages = ({"gradient_accumulation_steps": 4}, 1), (pipeline(2), 2)
        steps = self.reference(alone[0], model=model)
        for first, second in (alone, stages), (stages, alone):
            saved = tempfile.mkdtemp(dir=self.folder)
            self.metrics(*first, model=model, steps=5, checkpoint_dir=saved)
            self.assert_same(self.metrics(*second, model=model, checkpoint_dir=saved), steps[5:])

    def test_seed_of_run_changes_dropout(self):
        model = dict(GPT2, resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1)
        losses = []
        for seed in 7, 8:
            wanted = self.recipe(pipeline(2), steps=1, model=model, init_weights=self.weights)
            wanted["data"]["shuffle"], wanted["run"]["seed"] = False, seed
            losses.append(run_with_metrics(wanted, 2)[1][0]["loss"])
        self.assertNotAlmostEqual(losses[0], losses[1], places=5)


class CheckpointTest(PipelineCase):
    def test_any_layout_loads_checkpoint_of_any_other(self):
        def engine(layout):
            stages, _, zero = layout
            return {**OPTIMIZERS["adamw_clipped"], **pipeline(stages, "1f1b", 2, zero)}

        steps = self.reference({**OPTIMIZERS["adamw_clipped"], "gradient_accumulation_steps": 2})
        saved = {}
        for layout in LAYOUTS:
            saved[layout] = os.path.join(self.folder, "saved-%d-%d-%d" % layout)
            self.metrics(engine(layout), layout[0] * layout[1], steps=5, checkpoint_dir=saved[layout])
        full = os.environ.get("DSLAUNCH_TEST_FULL") == "1"
        for i, first in enumerate(LAYOUTS):
            # Without DSLAUNCH_TEST_FULL, each layout is saved and loaded twice.
            for second in LAYOUTS if full else (LAYOUTS[i - 1], LAYOUTS[i - 3]):
                with self.subTest(saved=first, loaded=second):
                    copy = saved[first] + "-copy"
                    shutil.copytree(saved[first], copy)
                    metrics = self.metrics(engine(second), second[0] * second[1], checkpoint_dir=copy)
                    shutil.rmtree(copy)
                    self.assertEqual([step["step"] for step in metrics], [6, 7, 8, 9, 10])
                    for got, wanted in zip(metrics, steps[5:]):
                        self.assertLess(abs(got["loss"] / wanted["loss"] - 1), 1e-6)

    def test_evaluates_predicts_and_exports_trained_model(self):
        folder, exported = os.path.join(self.folder, "kept"), os.path.join(self.folder, "exported")
        trained = self.recipe(pipeline(2), steps=2, checkpoint_dir=folder, export_hf=exported)
        ranks = run(trained, 4)
        self.assertEqual([(rank.code, rank.err) for rank in ranks], [(0, "")] * 4)
        tested = re.search(r"test.*", ranks[0].out)[0]
        for engine, world in ((pipeline(2), 4), ({}, 1)):
            ranks = run(self.recipe(engine, checkpoint_dir=folder, mode="evaluate"), world)
            self.assertEqual([rank.code for rank in ranks], [0] * world, ranks[0].err)
            self.assertEqual(re.search(r"test.*", ranks[0].out)[0], tested)
        lines = []
        for engine, world in ((pipeline(2), 4), ({}, 1)):
            file = os.path.join(self.folder, "predictions")
            ranks = run(self.recipe(engine, checkpoint_dir=folder, mode="predict", predictions=file), world)
            self.assertEqual([rank.code for rank in ranks], [0] * world, ranks[0].err)
            with open(file) as predictions:
                lines.append([json.loads(line) for line in predictions])
        self.assertEqual([line["prediction"] for line in lines[0]], [line["prediction"] for line in lines[1]])
        again = self.recipe({}, init_weights=exported, mode="evaluate")
        self.assertEqual(re.search(r"test.*", run(again)[0].out)[0], tested)
        with safe_open(os.path.join(exported, "model.safetensors"), "pt") as file:
            self.assertEqual(set(file.keys()), set(dict(Gpt2(GPT2).named_parameters())))
        for engine, world in ((pipeline(2), 2), ({}, 1)):
            ranks = run(self.recipe(engine, checkpoint_dir=folder, mode="predict", prompt="Once", max_new_tokens=8,
                                    temperature=0), world)
            self.assertEqual([rank.code for rank in ranks], [0] * world, ranks[0].err)
            lines.append(ranks[0].out)
        self.assertEqual(lines[2], lines[3])


class PlanTest(PipelineCase):
    def test_plan_draws_schedule(self):
        svg = os.path.join(self.folder, "plan.svg")
        for schedule in FACTORS["schedule"]:
            rank = run(self.recipe(pipeline(2, schedule), mode="plan_pipeline", pipeline_svg=svg), 2)[0]
            self.assertEqual((rank.code, rank.err), (0, ""))
            self.assertIn("stage 0: layers 0 to ", rank.out)
            self.assertIn("stage 1: layers ", rank.out)
            self.assertRegex(rank.out, r"stage 0: .*; \d+ % of the computing")
            chosen, = re.findall(r"(?m)^(\S+) +[\d.]+ x +\d+ % +[\d.]+ +<- chosen$", rank.out)
            self.assertEqual(chosen, schedule)
            with open(svg) as file:
                self.assertTrue(file.read().startswith("<svg"))

    def test_plan_shows_memory_of_each_stage(self):
        rank = run(self.recipe(pipeline(2), mode="plan_memory"), 2)[0]
        self.assertEqual((rank.code, rank.err), (0, ""))
        self.assertEqual(rank.out.count("memory of one rank"), 2)


class MistakesTest(PipelineCase):
    def test_reports_mistakes_in_configuration(self):
        self.refused(self.recipe(pipeline(3)), "engine.pipeline.stages is 3, which does not divide 2 ranks")
        mlp = self.recipe(pipeline(4), model={"type": "mlp"})
        mlp["data"] = {"type": "idx", "path": self.folder}
        self.refused(mlp, "2 layers", "4", ranks=4)
        self.refused(self.recipe(pipeline(2, "interleaved", virtual_stages=8)), "8 layers", "16")
        self.refused(self.recipe(pipeline(2, partition="type:nothing")), "nothing")
        self.refused(self.recipe(pipeline(2), check_replicas_every=1), "check_replicas_every", "pipeline")

    def test_rejects_different_configurations_on_ranks(self):
        wanted = [self.recipe(pipeline(2, micro_batches=count)) for count in (2, 4)]
        with Job(wanted[0], 2, recipe_of_rank={1: wanted[1]}) as job:
            for rank in job.finish(60):
                self.assertEqual(rank.code, BAD_INPUT, rank.err)
                self.assertEqual(rank.err.count("\n"), 1, rank.err)
                self.assertRegex(rank.err, r"rank 0.*\b2\b.*rank 1.*\b4\b")

    def test_ranks_exit_when_a_stage_is_killed(self):
        for victim in (0, 1, 2):
            with self.subTest(victim=victim), Job(self.recipe(pipeline(4), steps=100000), 4) as job:
                job.wait_for(lambda: '"step":' in job.read(0, 2) or "step" in job.read(0, 2), 60, "steps are made")
                job.processes[victim].send_signal(signal.SIGKILL)
                assert_killed_and_lost(self, job.finish(30), victim)


if __name__ == "__main__":
    unittest.main()
