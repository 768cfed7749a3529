"""Tests the embedded trainer through dslaunch, on nodes that are all on this machine."""

import json
import pathlib
import shutil
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from launcher_case import FASHION_MNIST, LauncherCase, main, wait_until  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOCAL = ["--launcher", "local"]


class Training(LauncherCase):
    def losses(self, nodes, ranks):
        """Trains and returns the loss of every step."""
        metrics = self.folder / f"metrics.{nodes}x{ranks}.jsonl"
        code, job = self.run_job(LOCAL, "--num_nodes", nodes, "--num_gpus", ranks, "train", FASHION_MNIST,
                                 "--steps", 50, "--seed", 7, "--metrics_jsonl", metrics, timeout_s=240)
        self.assert_code(0, code, job)
        self.assert_presentable(job)
        self.assert_nothing_left()
        records = [json.loads(line) for line in metrics.read_text().splitlines()]
        return [record["loss"] for record in records if "loss" in record]

    def test_loss_does_not_depend_on_number_of_nodes(self):
        one_node, two_nodes = self.losses(1, 4), self.losses(2, 2)
        self.assertGreaterEqual(len(one_node), 50)
        self.assertEqual(len(one_node), len(two_nodes))
        self.assertLess(one_node[-1], one_node[0], "it learns nothing")
        for step, (one, two) in enumerate(zip(one_node, two_nodes)):
            self.assertLessEqual(abs(one - two), 1e-5 * abs(one), f"step {step}: {one} and {two}")

    def test_killed_rank_ends_the_training(self):
        import os
        import signal
        job = self.start(LOCAL, "--num_nodes", 2, "--num_gpus", 2, "train", FASHION_MNIST, "--epochs", 1000)
        self.wait_for_output(job, r"(?i)loss", timeout_s=90)
        victim, = [process for process in self.leftovers()
                   if process.name == "dslaunch-train" and process.environ.get("RANK") == "3"]
        os.kill(victim.pid, signal.SIGKILL)
        self.assert_code(137, self.wait(job, 15), job)
        self.assert_prints(job, r"rank 3\b", "SIGKILL")
        self.assert_nothing_left()

    def test_missing_gpu_is_the_cause(self):
        code, job = self.run_job(LOCAL, "-n", 1, "--json", "--env", "CUDA_VISIBLE_DEVICES=", "train", "fashion_mnist",
                                 "--set", "run.device=cuda", "--steps", 3)
        self.assert_code(69, code, job)
        cause = json.loads(job.stdout.strip().splitlines()[-1])["cause"]
        self.assertFalse(cause["victim"], job.output)
        self.assertIn("cuda", cause["evidence"].lower())
        self.assertNotIn("another rank", job.stderr)
        self.assert_nothing_left()

    def test_restarted_job_resumes_from_last_checkpoint(self):
        import os
        import signal
        checkpoints, metrics = self.folder / "checkpoints", self.folder / "metrics.jsonl"
        job = self.start(LOCAL, "--num_nodes", 2, "--num_gpus", 2, "--max_restarts", 3, "train", FASHION_MNIST,
                         "--steps", 1500, "--checkpoint_dir", checkpoints, "--save_every", 100, "--metrics_jsonl",
                         metrics)
        wait_until(lambda: (checkpoints / "latest").exists(), 120)
        victim, = [process for process in self.leftovers()
                   if process.name == "dslaunch-train" and process.environ.get("RANK") == "3"]
        os.kill(victim.pid, signal.SIGKILL)
        self.assert_code(0, self.wait(job, 240), job)
        self.assert_prints(job, r"resuming from \S+/step_\d+")
        records = [record for record in map(json.loads, metrics.read_text().splitlines()) if "eval" not in record]
        self.assertEqual({record["step"] for record in records}, set(range(1, 1501)))
        self.assertEqual({record["attempt"] for record in records}, {1, 2})
        second = [record["step"] for record in records if record["attempt"] == 2]
        self.assertEqual(second, list(range(second[0], 1501)))
        self.assertEqual(second[0] % 100, 1, "it went on right behind a checkpoint")
        self.assertEqual((checkpoints / "latest").read_text(), "step_001500")
        self.assert_nothing_left()

    def test_results_and_predictions_are_json_on_stdout(self):
        """The stdout of a job, and of its predictions, must be JSON that can be piped to a program."""
        checkpoints = self.folder / "checkpoints"
        code, job = self.run_job(LOCAL, "--num_nodes", 2, "--num_gpus", 2, "--json", "train", "fashion_mnist", "--steps", 30,
                                 "--checkpoint_dir", checkpoints)
        self.assert_code(0, code, job)
        self.assertNotIn("is slow", job.stderr, "four ranks share the cores, and their steps take some ms")
        result = json.loads(job.stdout.splitlines()[-1])["result"]
        self.assertEqual((result["step"], result["samples"]), (30, 10000))
        self.assertEqual(result["accuracy"], result["correct"] / 10000)
        code, job = self.run_job(LOCAL, "--num_gpus", 2, "predict", "fashion_mnist", "--checkpoint_dir", checkpoints)
        self.assert_code(0, code, job)
        answers = [json.loads(line) for line in job.stdout.splitlines()]
        self.assertEqual([answer["index"] for answer in answers], list(range(10000)))
        self.assertRegex(job.stderr, r"(?m)weights from %s/step_000030$" % checkpoints)
        code, job = self.run_job(LOCAL, "predict", "fashion_mnist", "--checkpoint_dir", checkpoints, "--top_k", 3)
        self.assert_code(64, code, job)
        self.assert_prints(job, "--top_k sets how --prompt or --prompts is continued; give one of them too")
        self.assert_nothing_left()

    def test_one_job_at_a_time_saves_into_a_folder(self):
        import os
        import signal
        checkpoints = self.folder / "checkpoints"
        jobs = [self.start(LOCAL, "--num_gpus", 1, "--max_restarts", 2, "train", FASHION_MNIST, "--steps", 1000000,
                           "--checkpoint_dir", checkpoints, "--save_every", 50) for _ in range(4)]
        wait_until(lambda: sum(job.running() for job in jobs) == 1, 120)
        trains, = [job for job in jobs if job.running()]
        for job in jobs:
            if job is not trains:
                self.assert_code(65, self.wait(job), job)
                self.assert_prints(job, r"checkpoints: job \S+ on \S+ \(pid \d+\) saves there, with a heartbeat \d+ s ago",
                                   "stop that job, wait until it has ended, or give another folder")
                self.assert_presentable(job)
        wait_until(lambda: (checkpoints / "latest").exists(), 60)
        rank, = [process for process in self.leftovers() if process.name == "dslaunch-train"]
        os.kill(rank.pid, signal.SIGKILL)
        self.assert_prints(trains, "training mlp")
        wait_until(lambda: "took the folder over: attempt 1 of this job had it" in trains.output, 60)
        trains.signal(signal.SIGTERM)
        self.wait(trains, 60)
        self.assertTrue((checkpoints / (checkpoints / "latest").read_text()).is_dir())
        self.assert_nothing_left()

    def test_job_stopped_on_request_is_not_restarted(self):
        import os
        import signal
        checkpoints = self.folder / "checkpoints"
        options = [LOCAL, "--num_nodes", 2, "--num_gpus", 2, "--max_restarts", 3, "train", FASHION_MNIST,
                   "--checkpoint_dir", checkpoints]
        job = self.start(*options, "--steps", 1000000)
        self.wait_for_output(job, r"(?i)loss", timeout_s=90)
        victim, = [process for process in self.leftovers()
                   if process.name == "dslaunch-train" and process.environ.get("RANK") == "3"]
        os.kill(victim.pid, signal.SIGTERM)
        self.assert_code(85, self.wait(job, 30), job)
        self.assert_prints(job, r"stopped after step \d+ of 1000000: SIGTERM \(rank 3\)", "start again to continue",
                           "no restart: the program stopped on request")
        self.assert_nothing_left()
        step = int((checkpoints / "latest").read_text()[len("step_"):])
        code, again = self.run_job(*options, "--steps", step + 5, timeout_s=120)
        self.assert_code(0, code, again)
        self.assert_prints(again, rf"resuming from \S+/step_{step:06d}", "test accuracy")

    def test_built_in_recipes_accept_their_documented_data(self):
        text, tokens, images = self.folder / "text", self.folder / "tokens", self.folder / "images"
        text.write_bytes(b"A text of no more than a few thousand bytes. " * 400)
        tokens.mkdir()
        for split in ("train", "val"):
            (tokens / f"{split}.bin").write_bytes(bytes(2 * 60000))
        images.mkdir()
        for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
            (images / name).write_bytes(bytes(3073 * 40))
        perplexity, memory = (["--steps", 2], "test perplexity"), (["--plan_memory"], "memory of")
        of_many = (["--plan_memory", "--ranks", 8], "memory of")
        for recipe, ranks, data, (options, says) in (
                ("gpt2_tiny", 2, text, perplexity), ("gpt2_tiny_pipeline", 2, text, perplexity),
                ("gpt2_small", 2, tokens, memory), ("gpt2_small_pipeline", 4, tokens, memory),
                ("llama_tiny", 2, text, perplexity), ("llama_1b", 1, tokens, of_many), ("llama_8b", 1, tokens, of_many),
                ("llama_tiny_lora", 2, text, of_many), ("qwen3_0.6b", 1, tokens, of_many),
                ("cifar10", 2, images, memory)):
            code, job = self.run_job(LOCAL, "--num_gpus", ranks, "train", recipe, "--data", data, *options, timeout_s=120)
            self.assert_code(0, code, job)
            self.assert_prints(job, says)
            code, job = self.run_job(LOCAL, "--num_gpus", 1, "train", recipe, timeout_s=60)
            self.assert_code(65, code, job)
            self.assert_prints(job, "data.path is missing", "--data")

    def test_reads_images_in_folders_of_their_classes(self):
        corpus = ROOT / "tests" / "fuzz" / "corpus" / "DecodesImage"
        for split in ("train", "val"):
            for name in ("cat", "dog"):
                (self.folder / split / name).mkdir(parents=True)
                for kind in ("rgb.png", "subsampled.jpg", "inks.jpg", "palette.png"):
                    shutil.copy(corpus / kind, self.folder / split / name)
        options = ["train", "cifar10", "--data", self.folder, "--set", "data.type=image_folder", "--set", "data.image_size=32",
                   "--set", "model.num_classes=2", "--set", "engine.train_batch_size=8", "--steps", 2]
        code, job = self.run_job(LOCAL, "--num_gpus", 2, *options, timeout_s=120)
        self.assert_code(0, code, job)
        self.assert_prints(job, r"images are 32 x 32 pixels, .*\(data\.image_size\)", "8 samples, 2 steps of 8", r"test accuracy .* of 8\)")
        bad = self.folder / "val" / "dog" / "rgb.png"
        bad.write_bytes(bad.read_bytes()[:200])
        code, job = self.run_job(LOCAL, "--num_gpus", 2, *options, timeout_s=120)
        self.assert_code(65, code, job)
        self.assert_prints(job, r"val/dog/rgb.png: is a damaged PNG file \(it ends too early\)")
        self.assert_presentable(job)

    def test_reports_missing_data_folder(self):
        code, job = self.run_job(LOCAL, "--num_gpus", 2, "train", "fashion_mnist", "--data", self.folder / "nowhere",
                                 timeout_s=90)
        self.assert_code(65, code, job)
        self.assert_prints(job, "nowhere")
        self.assert_presentable(job)
        self.assert_nothing_left()


if __name__ == "__main__":
    main()
