"""Tests that `dslaunch bench comm` measures all exchanges on the ranks of a job, and that their results are right."""

import json
import os
import re
import subprocess
import tempfile
import unittest

DSLAUNCH = os.path.join(os.environ["DSLAUNCH_BUILD_DIR"], "bin", "dslaunch")
EXCHANGES = {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "send_recv", "parameter_server"}


class BenchTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="dslaunch-bench-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_bench(self, nodes, ranks, *options):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("DSLAUNCH_", "GLOO_", "TORCH"))}
        return subprocess.run([DSLAUNCH, "--launcher", "local", "--num_nodes", str(nodes), "--num_gpus", str(ranks),
                               "--log_dir", self.folder + "/logs", "bench", "comm", "--iterations", "3", *options],
                              cwd=self.folder, env=kept, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=120)

    def check(self, nodes, ranks, *options):
        ended = self.run_bench(nodes, ranks, "--json_file", "out.json", "--svg_file", "out.svg", *options)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        with open(self.folder + "/out.json") as file:
            result = json.load(file)
        self.assertTrue(all(one["wrong"] == 0 and one["time_s"] > 0 for one in result["measurements"]), result)
        return ended.stdout, result

    def test_measures_every_exchange_over_sizes_and_ranks(self):
        for nodes, ranks in (1, 4), (2, 2):
            with self.subTest(nodes=nodes):
                out, result = self.check(nodes, ranks, "--min_bytes", "64", "--max_bytes", "262144")
                series = {(one["exchange"], one["ranks"]) for one in result["measurements"]}
                self.assertEqual(series, {(name, count) for name in EXCHANGES for count in (2, 4)})
                self.assertEqual(len(result["measurements"]), len(series) * 7)
                self.assertRegex(out, r"all_reduce +4 +65536 +[\d.]+ +[\d.]+ +[\d.]+ +0\n")
                with open(self.folder + "/out.svg") as file:
                    self.assertIn("all_reduce, 4 ranks", file.read())

    def test_predicts_times_of_server_and_ring(self):
        out, _ = self.check(1, 2, "--exchanges", "send_recv", "--max_bytes", "65536", "--predict", "300000000",
                            "--bandwidth", "1")
        rows = re.findall(r"^\[\S+\] +(\d+) +([\d.]+) +([\d.]+)$", out, re.MULTILINE)
        self.assertEqual([int(row[0]) for row in rows], [2, 4, 8, 16, 32, 64])
        for ranks, server, ring in ((int(a), float(b), float(c)) for a, b, c in rows):
            self.assertAlmostEqual(server, 2.4 * ranks, delta=0.1)
            self.assertAlmostEqual(ring, 2.4 * (ranks - 1) / ranks, delta=0.1)

    def test_rejects_invalid_options(self):
        for options, words in ((["--exchanges", "gossip"], "there is no exchange gossip; there are all_reduce"),
                               (["--ranks", "3"], "--ranks 3: the job has 2 ranks"),
                               (["--min_bytes", "x"], "--min_bytes x must be a number above 0")):
            ended = self.run_bench(1, 2, *options)
            self.assertEqual(ended.returncode, 64, ended.stdout + ended.stderr)
            self.assertIn(words, ended.stdout + ended.stderr)
        ended = self.run_bench(1, 1)
        self.assertEqual(ended.returncode, 64)
        self.assertIn("one rank has no other to exchange with", ended.stdout + ended.stderr)


if __name__ == "__main__":
    unittest.main()
