"""Tests data sets and metrics of a plugin in `dslaunch train`, and plugins that misbehave."""

import json
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from launcher_case import BUILD, LauncherCase, main, report_document  # noqa: E402

LIBRARY = BUILD / "tests" / "libdslaunch-mistaken-data.so"
BAD_INPUT = 65


class Plugin(LauncherCase):
    def recipe(self, data=None, metrics=None, name="mistaken", **changes):
        """Writes a recipe whose data come from the plugin; returns its path."""
        recipe = {"model": {"type": "mlp", "hidden_size": 16, "num_classes": 4},
                  "data": {"type": "plugin", "plugin": str(LIBRARY), "name": name, "params": data or {}},
                  "run": {"epochs": 25, "seed": 1, "eval_every": 50, "metrics": ["right"],
                          "metrics_params": {"right": metrics or {}}},
                  "engine": {"train_batch_size": 16, "optimizer": {"type": "Adam", "params": {"lr": 0.02}}}}
        for key, value in changes.items():
            recipe[key].update(value)
        path = self.folder / "recipe.json"
        path.write_text(json.dumps(recipe))
        return path

    def train(self, recipe, *options, ranks=2):
        code, job = self.run_job("--launcher", "local", "--num_gpus", ranks, "--device", "cpu", "--json", "train", recipe,
                                 *options, timeout_s=240)
        self.assert_nothing_left()
        return code, job

    def check_refused(self, recipe, *words):
        code, job = self.train(recipe)
        self.assertEqual(BAD_INPUT, code, job.output)
        for word in words:
            self.assertIn(word, job.stderr)
        self.assertNotIn("internal error", job.output)

    def test_trains_evaluates_predicts_and_reports(self):
        checkpoints, metrics = self.folder / "checkpoints", self.folder / "metrics.jsonl"
        recipe = self.recipe()
        code, job = self.train(recipe, "--checkpoint_dir", checkpoints, "--metrics_jsonl", metrics)
        self.assertEqual(0, code, job.output)
        end = json.loads(job.stdout.splitlines()[-1])
        self.assertEqual(end["result"]["samples"], 32)
        self.assertEqual(end["result"]["right"], 1.0)
        self.assertIn("of 32), loss", job.output)
        self.assertIn(", right 1", job.output)
        evaluations = [record["eval"] for record in map(json.loads, metrics.read_text().splitlines()) if "eval" in record]
        self.assertGreaterEqual(len(evaluations), 2)
        for evaluation in evaluations:
            self.assertEqual(evaluation["right"], evaluation["accuracy"])

        page = self.folder / "report.html"
        code, job = self.run_job("report", "last", "-o", page)
        self.assertEqual(0, code, job.output)
        card, = (card for card in report_document(page)["cards"] if card["id"] == "evaluation")
        self.assertIn("right", json.dumps(card))

        code, job = self.train(recipe, "--eval_only", "--checkpoint_dir", checkpoints, ranks=3)
        self.assertEqual(0, code, job.output)
        self.assertEqual(json.loads(job.stdout.splitlines()[-1])["result"]["right"], 1.0)

        code, job = self.run_job("--launcher", "local", "--num_gpus", 2, "--device", "cpu", "predict", recipe,
                                 "--checkpoint_dir", checkpoints)
        self.assertEqual(0, code, job.output)
        answers = [json.loads(line)["prediction"] for line in job.stdout.splitlines()]
        self.assertEqual(answers, [index % 4 for index in range(32)])

    def test_pipeline_evaluates_in_last_stage(self):
        code, job = self.train(self.recipe(engine={"pipeline": {"stages": 2}, "gradient_accumulation_steps": 2}))
        self.assertEqual(0, code, job.output)
        self.assertEqual(json.loads(job.stdout.splitlines()[-1])["result"]["right"], 1.0)

    def test_list_shows_datasets_and_metrics_of_plugin(self):
        for command in (["train", "--list", "--plugin", LIBRARY], ["recipe", "ls", LIBRARY]):
            code, job = self.run_job(*command)
            self.assertEqual(0, code, job.output)
            self.assertRegex(job.stdout, r"(?m)^dataset +mistaken ")
            self.assertRegex(job.stdout, r"(?m)^metric +right ")
        code, job = self.run_job("recipe", "ls", __file__)
        self.assertEqual(BAD_INPUT, code, job.output)
        self.assertIn("not a shared library", job.stderr)

    def test_suggests_names_for_misspelt_ones(self):
        self.check_refused(self.recipe(name="mistakn"), 'defines no dataset "mistakn", did you mean "mistaken"?')
        self.check_refused(self.recipe(name="other"), 'defines no dataset "other"; it defines mistaken, null')
        self.check_refused(self.recipe(run={"metrics": ["rigt"], "metrics_params": {}}),
                           'defines no metric "rigt", did you mean "right"?')
        self.check_refused(self.recipe(data={}, run={"metrics_plugin": str(self.folder / "none.so")}), "does not exist",
                           "run.metrics_plugin")

    def test_reports_dataset_that_throws_or_lacks_samples(self):
        for data, *words in (
                ({"throws": 1}, "the dataset mistaken cannot be made for training: no shards in "),
                ({"throws": 2}, "it throws an exception that is not a std::exception"),
                ({"size": 0}, "the dataset mistaken has no training samples"),
                ({"size": -3}, "has the size -3"),
                ({"size": 8}, "8 training samples are fewer than one global batch"),
                ({"throws_at": 17}, "cannot read samples: sample 17 is torn"),
                ({"throws_at": 17, "rank": 1}, "sample 17 is torn"),
                ({"wide_at": 17}, "gives samples that differ", "Float [samples, 8]"),
                ({"one_too_many": 1}, "gives inputs Float [2, 8] for 1 sample"),
                ({"no_targets": 1}, "gives no targets"),
                ({"float_targets": 1}, "the model takes inputs of float and targets Long [samples]"),
                ({"label": 4}, "a label that is not below model.num_classes, 4"),
                ({"shorter": 1, "rank": 1}, "the ranks do not have the same data (rank 0: 64 training samples of 8",
                 "rank 1: 63 training samples of 8"),
                ({"test_size": 31, "rank": 1}, "31 samples to evaluate on"),
                ({"width": 9, "rank": 1}, "rank 1: 64 training samples of 9")):
            with self.subTest(data=data):
                self.check_refused(self.recipe(data), *words)
        self.check_refused(self.recipe(name="null"), "has no training samples")

    def test_rejects_metrics_that_are_wrong(self):
        for metrics, *words in (
                ({"throws": 1}, "the metric right fails: division by zero"),
                ({"throws": 1, "rank": 1}, "the metric right fails: division by zero"),
                ({"sums": 0}, "the metric right gives 0 sums"),
                ({"sums": 3, "rank": 1}, "sums on one rank")):
            with self.subTest(metrics=metrics):
                self.check_refused(self.recipe(metrics=metrics), *words)

    def test_skips_evaluation_without_data(self):
        code, job = self.train(self.recipe({"test_size": 0}))
        self.assertEqual(0, code, job.output)
        self.assertIn("has no evaluation data", job.output)


if __name__ == "__main__":
    main()
