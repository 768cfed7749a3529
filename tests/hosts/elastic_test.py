"""Tests jobs that lose a node and continue with fewer nodes, with a spare, and from the last checkpoint."""

import json
import os
import signal
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from hosts_case import HostsCase, main  # noqa: E402
from launcher_case import FASHION_MNIST, bash  # noqa: E402
from test_hosts import wait_until  # noqa: E402

TIMES = ["--grace", "1", "--heartbeat_s", "0.33", "--suspect_s", "1", "--dead_s", "2", "--restart_delay_s", "0.1"]
STEPS = 400
SAVE_EVERY = 20
BATCH = 240  # divisible by the numbers of ranks, three and two


class ElasticCase(HostsCase):
    host_options = {"count": 3}

    def hostfile(self, hosts, spare=False):
        return hosts.hostfile(text="".join(
            f"{node.name} slots=1{' spare=true' if spare and node is hosts.nodes[-1] else ''}\n" for node in hosts.nodes))


class Programs(ElasticCase):
    """Tests programs without support for restarts."""

    SCRIPT = """touch "$1/up.$DSLAUNCH_ATTEMPT.$RANK.$WORLD_SIZE.$TORCHELASTIC_RESTART_COUNT"
                if [ $RANK = 1 ] && [ $DSLAUNCH_ATTEMPT -le $2 ]; then sleep 0.2; exit 9; fi
                until [ -e "$1/go" ]; do sleep 0.05; done"""

    def run_restarting(self, bad_attempts, max_restarts):
        (self.folder / "go").unlink(missing_ok=True)
        job = self.start("--hostfile", self.hostfile(self.hosts), *TIMES, "--max_restarts", max_restarts,
                         bash(self.SCRIPT), "-", str(self.folder), str(bad_attempts))
        self.wait_for_files(job, f"up.{min(bad_attempts, max_restarts) + 1}.*", 3)
        (self.folder / "go").touch()
        return self.wait(job, 30), job

    def test_job_succeeds_after_restarts(self):
        code, job = self.run_restarting(bad_attempts=2, max_restarts=3)
        self.assert_code(0, code, job)
        found = {path.name for path in self.folder.glob("up.*")}
        self.assertEqual({f"up.{attempt}.{rank}.3.{attempt - 1}" for attempt in (1, 2, 3) for rank in range(3)}, found)
        self.assert_presentable(job)
        self.assert_nothing_left(2)

    def test_job_fails_after_last_restart(self):
        code, job = self.run_restarting(bad_attempts=99, max_restarts=2)
        self.assert_code(9, code, job)
        self.assert_prints(job, r"rank 1 \(node2\b.*exited with code 9")
        self.assertEqual(9, len(list(self.folder.glob("up.*"))), job.output)
        self.assert_nothing_left(2)

    def test_power_cut_without_restarts_ends_job(self):
        hosts = self.fresh_hosts(count=3)
        job = self.start("--hostfile", self.hostfile(hosts), *TIMES, bash(self.SCRIPT), "-", str(self.folder), "0")
        self.wait_for_files(job, "up.1.*", 3)
        hosts.nodes[2].power_cut()
        self.assert_code(69, self.wait(job, 30), job)
        self.assert_prints(job, "node3 was lost")

    def lose_the_first_node(self, lose, *options):
        hosts = self.fresh_hosts(count=3)
        job = self.start("--hostfile", self.hostfile(hosts), *TIMES, "--nnodes", "2:3", *options,
                         bash(self.SCRIPT), "-", str(self.folder), "0")
        self.wait_for_files(job, "up.1.*", 3)
        lose(hosts.nodes[0])
        self.wait_for_files(job, "up.2.*.2.1", 2)
        (self.folder / "go").touch()
        self.assert_code(0, self.wait(job, 30), job)
        self.assert_prints(job, "node1 was lost", "node2 hosts the rendezvous from now on")
        self.assert_presentable(job)
        self.assert_nothing_left(5)

    def test_survives_power_cut_of_deciding_node(self):
        # The other nodes cannot detect that node 1's ranks have ended before its lease expires.
        self.lose_the_first_node(lambda node: node.power_cut(), "--lease_s", "3")

    def test_survives_kill_of_deciding_agent(self):
        self.lose_the_first_node(lambda node: os.kill(self.supervisor_and_agent(node)[1].pid, signal.SIGKILL))

    def test_survives_kill_of_deciding_supervisor(self):
        self.lose_the_first_node(lambda node: os.kill(self.supervisor_and_agent(node)[0].pid, signal.SIGKILL))


class Training(ElasticCase):
    """Trains on Fashion-MNIST with checkpoints. The power of node 3, which has a rank, is cut in the middle."""

    def train(self, hosts, hostfile, *options):
        self.metrics = self.folder / "metrics.jsonl"
        return self.start("--hostfile", hostfile, *options, *TIMES, "train", FASHION_MNIST, "--steps", STEPS,
                          "--seed", 3, "--checkpoint_dir", self.folder / "checkpoints", "--save_every", SAVE_EVERY,
                          "--resume", "auto", "--metrics_jsonl", self.metrics, "--set",
                          f"engine.train_batch_size={BATCH}")

    def records(self):
        if not self.metrics.exists():
            return []
        lines = self.metrics.read_text().splitlines(True)
        return [record for record in (json.loads(line) for line in lines if line.endswith("\n")) if "loss" in record]

    def check(self, job, lost):
        """Cuts the power of `lost` after some checkpoints. Checks that one restart resumes the training and that no
        step is missing."""
        wait_until(lambda: len(self.records()) > 2.5 * SAVE_EVERY or not job.running(), 120, "steps")
        before = len(self.records())
        lost.power_cut()
        self.assert_code(0, self.wait(job, 240), job)
        self.assert_prints(job, f"{lost.name} was lost")
        self.assert_presentable(job)
        records = self.records()
        steps = [record["step"] for record in records]
        jumps = [at for at in range(1, len(steps)) if records[at]["attempt"] != records[at - 1]["attempt"]]
        self.assertEqual(1, steps[0])
        self.assertEqual(STEPS, steps[-1])
        self.assertEqual(set(range(1, STEPS + 1)), set(steps), "a step is missing")
        self.assertEqual(1, len(jumps), f"one restart, but attempts begin at {jumps}")
        resumed_at, reached = steps[jumps[0]], steps[jumps[0] - 1]
        self.assertGreaterEqual(jumps[0], before)
        # Training resumes from the last complete checkpoint. That is the newest, or the previous one if the cut
        # interrupted the save.
        self.assertEqual(1, resumed_at % SAVE_EVERY)
        self.assertLessEqual(reached - resumed_at, 2 * SAVE_EVERY)
        self.assertLess(resumed_at, reached + 2)
        self.assertGreater(resumed_at, 1, "it began anew instead of resuming")
        loss = [record["loss"] for record in records]
        self.assertLess(sum(loss[-20:]), sum(loss[:20]), "it learns nothing")
        self.assert_nothing_left(10)

    def test_training_continues_with_fewer_nodes(self):
        hosts = self.fresh_hosts(count=3)
        job = self.train(hosts, self.hostfile(hosts), "--nnodes", "2:3")
        self.check(job, hosts.nodes[2])

    def test_training_continues_with_spare(self):
        hosts = self.fresh_hosts(count=3)
        job = self.train(hosts, self.hostfile(hosts, spare=True), "--nnodes", "2")
        self.check(job, hosts.nodes[1])


if __name__ == "__main__":
    main()
