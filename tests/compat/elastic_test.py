"""Tests that Horovod's elastic State (dslaunch/horovod_elastic.h) resumes in the restarts of real jobs.
Whatever ends an attempt, the next one begins from the newest commit. The losses are those of an uninterrupted run,
and an epoch has each sample once."""

import collections
import json
import os
import shutil
import signal
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/multiproc")
from free_ports import free_port  # noqa: E402
from launcher_case import BUILD, LauncherCase, bash, main  # noqa: E402
from test_hosts import wait_until  # noqa: E402

PROGRAM = str(BUILD / "tests" / "dslaunch-elastic-program")
FAULTS = os.environ["DSLAUNCH_FILE_FAULTS"]
STEPS, AT = 20, 5
EPOCH, SAMPLES = 10, 240  # steps and samples of one epoch
BAD_INPUT, PREEMPTED = 65, 85
Step = collections.namedtuple("Step", "attempt size step loss loss_sum lr passes")


class ElasticCase(LauncherCase):
    def setUp(self):
        super().setUp()
        self.out = self.folder / "out"
        self.out.mkdir()
        self.env = {"ELASTIC_OUT": str(self.out), "OMP_NUM_THREADS": "1"}

    def train(self, fault, nodes=1, ranks=2, options=(), code=0, program=None, **variables):
        """Runs the job to its end. Returns the steps of all attempts."""
        self.forget_steps()
        ended, job = self.run_job(
            "--launcher", "local", "--num_nodes", nodes, "--num_gpus", ranks, "--device", "cpu", "--max_restarts", "1",
            "--restart_delay_s", "0.1", "--log_dir", self.folder / "logs", *options, program or [PROGRAM, fault],
            env={**self.env, "ELASTIC_RANKS": str(nodes * ranks), **variables}, timeout_s=120)
        self.assert_code(code, ended, job)
        self.assert_presentable(job)
        self.job = job
        return self.steps()

    def forget_steps(self):
        for file in self.out.iterdir():
            file.unlink()

    def steps(self):
        file = self.out / "losses"
        rows = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        return [Step(*map(int, row[:3]), *map(float, row[3:6]), int(row[6])) for row in rows]

    def check_samples(self, begins_at):
        """Checks that each sample occurs once in an epoch, over all ranks and the steps that the last attempt built
        on."""
        seen = collections.Counter()
        for file in self.out.glob("samples.*"):
            for attempt, step, *samples in (map(int, line.split()) for line in file.read_text().splitlines()):
                if attempt == 2 or step <= begins_at:
                    seen.update(((step - 1) // EPOCH, sample) for sample in samples)
        self.assertEqual({(epoch, sample): 1 for epoch in range(STEPS // EPOCH) for sample in range(SAMPLES)}, seen)

    def check_same(self, expected, steps, begins_at):
        """Checks that attempt 2 begins after step `begins_at`, and that all steps are those of `expected`."""
        self.assertEqual([2], sorted({step.attempt for step in steps} - {1}), self.job.output)
        second = [step.step for step in steps if step.attempt == 2]
        self.assertEqual(list(range(begins_at + 1, STEPS + 1)), second, self.job.output)
        self.assertIn(STEPS, second)
        self.check_samples(begins_at)
        for step in steps:
            uninterrupted = expected[step.step - 1]
            self.assertEqual(uninterrupted.passes, step.passes, step)
            for one, other in zip(uninterrupted[3:6], step[3:6]):
                self.assertAlmostEqual(one, other, delta=1e-6 * max(1, abs(one)), msg=(uninterrupted, step))

    def uninterrupted(self, **options):
        steps = self.train("none", **options)
        self.assertEqual([(1, step) for step in range(1, STEPS + 1)], [(step.attempt, step.step) for step in steps])
        self.check_samples(begins_at=STEPS)
        return steps


class Restarts(ElasticCase):
    def test_resumes_from_last_commit_after_killed_rank(self):
        expected = self.uninterrupted()
        for fault in "kill", "throw":
            with self.subTest(fault):
                self.check_same(expected, self.train(fault), begins_at=AT)
                self.assert_prints(self.job, r"elastic: begins from commit 1\.5 of rank 0")
        self.assert_prints(self.job, r"attempt 1 ended: rank \d \(localhost\) exited with code \d+; restart 1 of 1",
                           r"rank 1 has left .*; the last commit is 1\.5, from which the job's next attempt begins")

    def test_restore_repeats_steps_in_one_process(self):
        expected = self.uninterrupted()
        steps = self.train("restore")
        self.assertEqual([step[1:] for step in expected], [step[1:] for step in steps])
        self.check_samples(begins_at=STEPS)

    def test_resumes_after_loss_of_first_rank_of_a_node(self):
        expected = self.uninterrupted(nodes=2)
        for fault, begins_at, words in (
                ("kill", AT, r"from commit 1\.5 of rank 0"),
                # The commit of the killed rank's node is damaged or missing, and the other node's commit is intact.
                ("damage", AT, r"commit 1\.5 is not used: .*/node_0/commit\.1\.5\.\S+ is damaged"),
                ("lose", AT, r"from commit 1\.5 of rank 2")):
            with self.subTest(fault):
                self.check_same(expected, self.train(fault, nodes=2, ELASTIC_RANK="0"), begins_at)
                self.assert_prints(self.job, words)

    def test_resumes_from_newest_commit_of_all_nodes(self):
        # Rank 0 dies before its commit 5, which node 1 has written.
        expected = self.uninterrupted(nodes=2, ranks=1)
        steps = self.train("newest", nodes=2, ranks=1, ELASTIC_RANK="0", ELASTIC_FOLDER=str(self.folder / "shared"))
        self.check_same(expected, steps, begins_at=AT)

    def test_rejects_commit_of_another_program(self):
        commits = str(self.folder / "commits")
        self.train("none", ranks=1, ELASTIC_FOLDER=commits)
        self.train("none", ranks=1, code=BAD_INPUT, ELASTIC_FOLDER=commits, ELASTIC_WIDTH="16")
        self.assertEqual([], self.steps())
        self.assert_prints(self.job, r"the commit is not one of this program: model\.fc1\.weight is Float \[32, 20\] there and "
                                   r"Float \[16, 20\] here", "no restart: exit code 65")

    def test_starts_over_if_all_commits_are_damaged(self):
        expected = self.uninterrupted()
        self.check_same(expected, self.train("damage", ELASTIC_RANK="0"), begins_at=0)
        self.assertNotIn("begins from commit", self.job.output)


class TornCommits(ElasticCase):
    """Tests SIGKILL before and within each call that changes files in commit 5."""

    def test_resumes_after_kill_during_commit(self):
        commits = self.folder / "commits"
        trace = self.folder / "trace"
        faults = {"FILE_FAULTS_FOLDER": str(commits), "FILE_FAULTS_TRACE": str(trace), "ELASTIC_FOLDER": str(commits)}

        def train(at, kind, code=0):
            trace.unlink(missing_ok=True)
            preload = f"if [ $DSLAUNCH_ATTEMPT = 1 ]; then export LD_PRELOAD={FAULTS}; fi; exec {PROGRAM} none"
            return self.train("none", ranks=1, code=code, program=bash(preload), FILE_FAULTS_AT=str(at),
                              FILE_FAULTS_KIND=kind, **faults)

        expected = train(0, "before")
        calls = [json.loads(line) for line in trace.read_text().splitlines()]
        renames = [call["number"] for call in calls if call["call"] == "rename"]
        self.assertEqual(STEPS + 1, len(renames), "one for each commit, and Sync's")
        self.assertRegex(calls[renames[AT] - 1]["to"], r"/node_0/commit\.1\.5\.\d+\.[0-9a-f]{8}\.safetensors$")
        of_commit = [call for call in calls if renames[AT - 1] < call["number"] <= renames[AT + 1]]
        first = next(call["number"] for call in of_commit if call["call"] == "open")
        last = max(call["number"] for call in of_commit if call["number"] < renames[AT] + 3)
        self.assertGreater(renames[AT] - first, 3, of_commit)
        writes = [number for number in range(first, last + 1) if calls[number - 1]["call"] == "write"]
        for number in sorted({first, *range(writes[-1], last + 1), writes[0], writes[len(writes) // 2]}):
            kind = "half" if number in writes else "before"
            with self.subTest(number=number, kind=kind, call=calls[number - 1]["call"]):
                shutil.rmtree(commits)
                steps = train(number, kind)
                self.check_same(expected, steps, begins_at=AT if number > renames[AT] else AT - 1)
                self.assertNotIn("not used", self.job.output)

    def test_reports_full_disk(self):
        commits = self.folder / "commits"
        self.train("none", ranks=1, options=("--max_restarts", "0"), code=74, LD_PRELOAD=FAULTS,
                   FILE_FAULTS_FOLDER=str(commits), FILE_FAULTS_AT="30", FILE_FAULTS_KIND="ENOSPC",
                   ELASTIC_FOLDER=str(commits))
        self.assert_prints(self.job, "commits/node_0/.*No space left on device")


class Hosts(ElasticCase):
    def node(self, rank, fault, last_call=1):
        return self.start("--nnodes", "1:2", "--nproc-per-node", "1", "--rdzv-endpoint", f"127.0.0.1:{self.port}",
                          "--node-rank", rank, "--rdzv-conf", f"last_call_timeout={last_call}", "--on_join", "now", "--device", "cpu",
                          "--log_dir", self.folder / f"logs{rank}", [PROGRAM, fault], env=self.env)

    def reached(self, job, step):
        def has():
            return any(one.step >= step for one in self.steps())
        wait_until(lambda: has() or not job.running(), 60, f"step {step}")

    def test_continues_with_node_that_joins(self):
        self.port = free_port()
        first = self.node(0, "wait")
        self.reached(first, AT)
        second = self.node(1, "wait")
        self.job = first
        for job in first, second:
            self.assert_code(0, self.wait(job, 90), job)
            self.assert_presentable(job)
            self.assertNotRegex(job.output, "killed|SIGKILL|failed")
        steps = self.steps()
        self.assertEqual([(1, 1, step) for step in range(1, AT + 1)] + [(2, 2, step) for step in range(AT + 1, STEPS + 1)],
                         [step[:3] for step in steps])
        # The callback scales the learning rate by the new size. The batches are the same.
        self.assertEqual([0.01] * AT + [0.02] * (STEPS - AT), [step.lr for step in steps])
        self.assertAlmostEqual(steps[AT].loss_sum, steps[AT - 1].loss_sum + steps[AT].loss, places=4)
        self.assert_prints(first, r"node1 joined", r"elastic: begins from commit 1\.5 of rank 0")
        self.check_samples(begins_at=AT)

    def test_continues_without_lost_node(self):
        self.port = free_port()
        first, second = (self.node(rank, "wait", last_call=60) for rank in (0, 1))
        self.reached(first, AT)
        second.signal(signal.SIGKILL)
        self.assert_code(0, self.wait(first, 90), first)
        self.wait(second, 60)
        steps = self.steps()
        self.assertEqual([(1, 2, step) for step in range(1, AT + 1)] + [(2, 1, step) for step in range(AT + 1, STEPS + 1)],
                         [step[:3] for step in steps], first.output)
        self.check_samples(begins_at=AT)

    def test_stopped_job_resumes_when_started_again(self):
        expected = self.uninterrupted()
        commits = str(self.folder / "commits")
        self.forget_steps()
        words = ["--launcher", "local", "--num_gpus", "2", "--device", "cpu", "--log_dir", self.folder / "logs", "--max_restarts",
                 "1", [PROGRAM, "wait"]]
        env = {**self.env, "ELASTIC_RANKS": "2", "ELASTIC_FOLDER": commits}
        job = self.start(*words, env=env)
        self.reached(job, AT)
        job.signal(signal.SIGTERM)
        self.assert_code(PREEMPTED, self.wait(job, 60), job)
        self.assertNotIn("horovod", job.output)
        self.assertEqual(list(range(1, AT + 1)), [step.step for step in self.steps()])
        self.train("none", ELASTIC_FOLDER=commits)
        steps = self.steps()
        self.assertEqual(list(range(AT + 1, STEPS + 1)), [step.step for step in steps])
        for step in steps:
            self.assertAlmostEqual(expected[step.step - 1].loss, step.loss, places=6)


if __name__ == "__main__":
    main()
