"""Tests DeepSpeed configurations as users write them: which run unchanged, and the reasons why the others do not."""

import json
import pathlib
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from launcher_case import LauncherCase, main  # noqa: E402

FOLDER = pathlib.Path(__file__).parent / "configurations"
BAD_INPUT = 65
REFUSED = {  # the files in configurations/refused
    "bert_sparse_attention": "sparse_attention is not supported",
    "curriculum": "curriculum_learning is not supported",
    "finetune_zero1_compile": "compile.deepcompile is true",
    "megatron_cpu_checkpointing": "activation_checkpointing.cpu_checkpointing is true",
    "moe_cifar": "expert_parallel is not supported",
    "muon": "which needs a flag on every parameter",
    "rlhf_hybrid_engine_on": "hybrid_engine.enabled is true, but inference inside the training loop",
    "trainer_zero3_zeropp": "ZeRO++ is not supported",
    "wandb_on": "it is an external service",
}
TRAINED = ["trainer_zero2", "instruct_zero3_older_names", "cosine", "rlhf_tensor_parallel"]


class Configurations(LauncherCase):
    def setUp(self):
        super().setUp()
        self.text = self.folder / "text.txt"
        self.text.write_text("To be, or not to be, that is the question. " * 200)

    def run_with(self, file, launch=(), train=()):
        return self.run_job("--launcher", "local", "-n", 2, *launch, "train", "gpt2_tiny", "--data", self.text,
                            "--steps", 2, "--deepspeed_config", FOLDER / file, *train, timeout_s=120)

    def test_accepts_configuration(self):
        files = sorted(FOLDER.glob("*.json"))
        self.assertGreaterEqual(len(files), 35)
        for file in files:
            with self.subTest(file.stem):
                self.assert_code(0, *self.run_with(file, launch=["--dry_run"]))

    def test_refuses_configuration_with_reason(self):
        files = sorted((FOLDER / "refused").glob("*.json"))
        self.assertEqual(sorted(REFUSED), [file.stem for file in files])
        for file in files:
            with self.subTest(file.stem):
                code, job = self.run_with(file, launch=["--dry_run"])
                self.assert_code(BAD_INPUT, code, job)
                self.assertIn(REFUSED[file.stem], job.stderr)
                self.assertIn(f"{file.name}:", job.stderr)

    def test_accepted_configurations_train(self):
        for name in TRAINED:
            with self.subTest(name):
                metrics = self.folder / f"{name}.jsonl"
                code, job = self.run_with(f"{name}.json", train=["--metrics_jsonl", metrics])
                self.assert_code(0, code, job)
                records = [json.loads(line) for line in metrics.read_text().splitlines()]
                self.assertEqual(2, len([record for record in records if "loss" in record]))

    def test_prints_values_used_for_auto(self):
        code, job = self.run_with("trainer_zero2.json", launch=["--dry_run"])
        self.assert_code(0, code, job)
        self.assert_prints(job, r'"auto" is taken as .*optimizer.params.lr 0.002.* \(from the recipe .*gpt2_tiny')
        self.assert_prints(job, r"bf16.enabled false.* \(the defaults of Hugging Face's Trainer\)")


if __name__ == "__main__":
    main()
