"""Tests what a job survives, such as ranks that fail and nodes that are lost or silent, and its reports about it."""

import json
import os
import signal
import sys
import time

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from launcher_case import TWO_BY_TWO, LauncherCase, bash, supervisors_and_agents, main  # noqa: E402
from test_hosts import wait_until  # noqa: E402

QUICK = ["--heartbeat_s", "0.2", "--suspect_s", "0.6", "--dead_s", "2", "--grace", "1", "--restart_delay_s", "0.2"]
UP_AND_WAIT = ': > "$FOLDER/up.$DSLAUNCH_ATTEMPT.$RANK"; [ $DSLAUNCH_ATTEMPT != 1 ] || exec sleep 60'


class Restarts(LauncherCase):
    def start_and_wait(self, *options, ranks):
        """Starts ranks that wait in attempt 1 and succeed in later attempts."""
        job = self.start(*options, QUICK, "--json", bash(UP_AND_WAIT), env={"FOLDER": str(self.folder)})
        self.wait_for_files(job, "up.1.*", ranks)
        return job

    def events(self, name):
        """Returns the events called `name` of the only job."""
        (path,) = self.folder.glob("state/dslaunch/jobs/*/events.jsonl")
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        return [line for line in lines if line["event"] == name]

    def node_processes(self, node):
        """Returns the supervisor and the agent of a node, found by the ranks that they started."""
        def started():
            return [event for event in self.events("started") if event["node"] == node]
        # The front end is notified of a start shortly after the ranks run.
        pids = wait_until(started, 20)[0]["pids"]
        supervisors, agents = supervisors_and_agents(self.leftovers())
        rank = next(process for process in self.leftovers() if process.pid in pids)
        supervisor = next(process for process in supervisors if process.pid == rank.ppid)
        return supervisor, next(process for process in agents if process.ppid == supervisor.pid)

    def closing(self, job):
        return json.loads(job.stdout.splitlines()[-1])

    def test_restarts_after_failed_rank(self):
        script = 'echo "attempt $DSLAUNCH_ATTEMPT restarts $TORCHELASTIC_RESTART_COUNT"; ' \
                 '[ "$DSLAUNCH_ATTEMPT.$RANK" != 1.3 ] || exit 7; [ $DSLAUNCH_ATTEMPT != 1 ] || exec sleep 60'
        code, job = self.run_job(TWO_BY_TWO, QUICK, "--max_restarts", "2", "--json", bash(script))
        self.assert_code(0, code, job)
        self.assert_prints(job, r"attempt 1 ended: rank 3 \(node1\) exited with code 7; restart 1 of 2",
                           "attempt 2 restarts 1", "4 ranks on 2 nodes succeeded in .* with 1 restart")
        self.assertEqual((0, 1, 2), tuple(self.closing(job)[key] for key in ("exit_code", "restarts", "attempts")))
        self.assert_nothing_left()

    def test_rank_that_always_fails_ends_job_with_its_code(self):
        code, job = self.run_job(TWO_BY_TWO, QUICK, "--max_restarts", "2", "--json",
                                 bash('[ $RANK != 1 ] || { echo "cannot $DSLAUNCH_ATTEMPT" >&2; exit 9; }; exec sleep 60'))
        self.assert_code(9, code, job)
        self.assertEqual(2, len(self.events("restarting")) // 2)
        cause = self.closing(job)["cause"]
        self.assertEqual(("worker_exit", "node0", 1, 9), tuple(cause[key] for key in ("kind", "node", "rank", "exit_code")))
        self.assertEqual(["cannot 3"], cause["last_lines"])
        self.assert_nothing_left()

    def test_first_failure_without_restarts_ends_job(self):
        code, job = self.run_job(TWO_BY_TWO, QUICK, bash('[ $RANK != 1 ] || exit 9; exec sleep 60'))
        self.assert_code(9, code, job)
        self.assertEqual([], self.events("restarting"))

    def test_spare_replaces_node_with_killed_agent(self):
        hostfile = self.folder / "hosts"
        hostfile.write_text("a slots=1\nb slots=1\nc slots=1 spare=true\n")
        job = self.start_and_wait("--launcher", "local", "--hostfile", hostfile, ranks=2)
        _, agent = self.node_processes("b")
        os.kill(agent.pid, signal.SIGKILL)
        code = self.wait(job)
        self.assert_code(0, code, job)
        self.assert_prints(job, "a b, spare: c", "attempt 1 ended: b was lost", r"b was lost: .*killed by SIGKILL")
        started = [event for event in self.events("started") if event["attempt"] == 2]
        self.assertEqual([["a", "c"]], [event["nodes"] for event in started if "nodes" in event])
        self.assert_nothing_left()

    def test_nnodes_range_continues_without_silent_node(self):
        job = self.start_and_wait("--launcher", "local", "--nnodes", "1:2", "--num_gpus", "1", ranks=2)
        supervisor, agent = self.node_processes("node1")
        for process in (supervisor, agent):
            os.kill(process.pid, signal.SIGSTOP)
            self.addCleanup(self.continue_process, process.pid)
        code = self.wait(job)
        self.assert_code(0, code, job)
        self.assert_prints(job, "attempt 1 ended: node1 was lost", "1 rank on 1 node succeeded")
        self.continue_process(supervisor.pid)
        self.continue_process(agent.pid)
        self.assert_nothing_left(within_s=10)

    def test_np_range_continues_with_remaining_nodes(self):
        job = self.start_and_wait("--launcher", "local", "-H", "a:2,b:2", "-np", "4", "--min-np", "2", "--max-np", "4", ranks=4)
        _, agent = self.node_processes("b")
        os.kill(agent.pid, signal.SIGKILL)
        code = self.wait(job)
        self.assert_code(0, code, job)
        self.assert_prints(job, "attempt 1 ended: b was lost", "2 ranks on 1 node succeeded")
        self.assert_nothing_left()

    def test_only_node_is_lost_if_silent(self):
        job = self.start_and_wait("--launcher", "local", "--num_nodes", "1", "--num_gpus", "1", "--lease_s", "4", ranks=1)
        supervisor, agent = self.node_processes("localhost")
        for process in (supervisor, agent):
            os.kill(process.pid, signal.SIGSTOP)
            self.addCleanup(self.continue_process, process.pid)
        code = self.wait(job, 20)
        self.assert_code(69, code, job)
        self.assert_prints(job, "localhost was lost: no heartbeat from it for 4 s")
        self.continue_process(supervisor.pid)
        self.continue_process(agent.pid)
        self.assert_nothing_left(within_s=10)

    def test_stopped_front_end_loses_no_node(self):
        job = self.start(TWO_BY_TWO, QUICK, bash('touch "$FOLDER/up.$RANK"; until [ -e "$FOLDER/go" ]; do sleep 0.05; done'),
                         env={"FOLDER": str(self.folder)})
        self.wait_for_files(job, "up.*", 4)
        job.signal(signal.SIGSTOP)
        time.sleep(4)  # twice the time after which a node is lost
        job.signal(signal.SIGCONT)
        time.sleep(1)
        (self.folder / "go").touch()
        code = self.wait(job)
        self.assert_code(0, code, job)
        self.assert_nothing_left()

    def continue_process(self, pid):
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass


if __name__ == "__main__":
    main()
