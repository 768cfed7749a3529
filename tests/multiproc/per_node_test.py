"""Tests one command per node, as with torchrun, with all nodes on this machine: how such jobs start and end, and
which commands are refused."""

import os
import re
import signal
import socket
import sys
import threading
import time

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from free_ports import free_port  # noqa: E402
from launcher_case import LauncherCase, bash, supervisors_and_agents, main  # noqa: E402
from test_hosts import children_of, processes_of, wait_until  # noqa: E402

USAGE, BAD_INPUT, UNAVAILABLE, TIMED_OUT, NO_PERMISSION = 64, 65, 69, 75, 77
PLACE = 'echo "rank=$RANK local=$LOCAL_RANK world=$WORLD_SIZE group=$GROUP_RANK at=$MASTER_ADDR:$MASTER_PORT."'
WAITS = 'touch "$FOLDER/up.$RANK"; trap "exit 0" TERM; while :; do sleep 0.05; done'
FAILS = ': > "$FOLDER/up.$RANK"; sleep 0.5; if [ $RANK = %d ]; then echo the reason >&2; exit 7; fi; exec sleep 60'


class PerNodeCase(LauncherCase):
    def setUp(self):
        super().setUp()
        self.port = free_port()
        self.env = {"FOLDER": str(self.folder)}

    def node(self, rank, *rest, nodes=2, slots=2, host="127.0.0.1", conf=None, **options):
        """Starts the command of node `rank`. If `rank` is None, node 0 assigns the rank."""
        place = ["--nnodes", str(nodes), "--nproc-per-node", str(slots), "--rdzv-endpoint", f"{host}:{self.port}"]
        if rank is None:
            place += ["--rdzv-backend", "c10d"]
        else:
            place += ["--node-rank", str(rank)]
        if conf:
            place += ["--rdzv-conf", conf]
        return self.start(place, *rest, **{"env": self.env, **options})

    def nodes(self, count, *rest, **options):
        return [self.node(rank, *rest, nodes=count, **options) for rank in range(count)]

    def ends_with(self, code, *jobs, timeout_s=30):
        for job in jobs:
            self.assert_code(code, self.wait(job, timeout_s), job)
            self.assert_presentable(job)
        self.assert_nothing_left()

    def up(self, jobs, ranks):
        self.last_job = jobs[0]
        self.wait_for_files(jobs[0], "up.*", ranks)

    def supervisor_and_agent_of(self, job):
        def both():  # a process that was just forked may look like its parent
            ours = [process for process in self.leftovers() if process.ppid == job.pid]
            agents = [process for supervisor in ours for process in processes_of(children_of(supervisor.pid))
                      if process.comm != "dslaunch-watch" and process.name.startswith("dslaunch-agent")]
            return (ours[0], agents[0]) if (len(ours), len(agents)) == (1, 1) else None
        return wait_until(both, 5, "one supervisor and one agent")


class Together(PerNodeCase):
    def test_two_nodes_form_one_job(self):
        jobs = self.nodes(2, "--show", "all", bash(PLACE))
        self.ends_with(0, *jobs)
        shown = [re.findall(r"\[(\w+):\d\] rank=(\d) local=(\d) world=4 group=(\d) at=(\S+)\.", job.stdout)
                 for job in jobs]
        self.assertEqual([("node0", "0", "0", "0"), ("node0", "1", "1", "0")], sorted(row[:4] for row in shown[0]))
        self.assertEqual([("node1", "2", "0", "1"), ("node1", "3", "1", "1")], sorted(row[:4] for row in shown[1]))
        self.assertEqual(1, len({row[4] for rows in shown for row in rows}), "all must be told the same address")
        self.assert_prints(jobs[0], r"node1 has joined: \S+ \(127\.0\.0\.1\), 2 slots", r"2 nodes x 2 slots = 4 ranks",
                           r"4 ranks on 2 nodes succeeded")
        self.assert_prints(jobs[1], r"node1 runs ranks 2 to 3 of 4", r"4 ranks on 2 nodes succeeded")

    def test_members_wait_for_node_0(self):
        others = [self.node(rank, bash("exit 0"), nodes=3) for rank in (2, 1)]
        self.wait_for_output(others[0], r"waiting for node 0 \(127\.0\.0\.1:\d+\): Connection refused")
        first = self.node(0, bash("exit 0"), nodes=3)
        self.ends_with(0, first, *others)

    def test_node_0_assigns_ranks_on_arrival(self):
        jobs = [self.node(None, "--show", "all", bash(PLACE), nodes=3, slots=1) for _ in range(3)]
        self.ends_with(0, *jobs)
        ranks = sorted(re.findall(r"rank=(\d)", "".join(job.stdout for job in jobs)))
        self.assertEqual(["0", "1", "2"], ranks)
        self.assertEqual(1, sum("ranks (a command each" in job.stderr for job in jobs))

    def test_nodes_may_have_unequal_slots(self):
        jobs = [self.node(0, "--show", "all", bash(PLACE), slots=1), self.node(1, "--show", "all", bash(PLACE), slots=3)]
        self.ends_with(0, *jobs)
        self.assert_prints(jobs[1], "rank=1 local=0 world=4", "rank=3 local=2 world=4")

    def test_each_node_keeps_its_folder_and_arguments(self):
        folders = [self.folder / name for name in ("here", "there")]
        script = 'echo "in $(basename $PWD), $MINE, $1."'
        for folder in folders:
            folder.mkdir()
        jobs = [self.node(rank, "--show", "all", bash(script), "sh", f"argument {rank}", slots=1, cwd=str(folders[rank]),
                          env={**self.env, "MINE": f"value {rank}"}) for rank in range(2)]
        self.ends_with(0, *jobs)
        self.assert_prints(jobs[0], "in here, value 0, argument 0.", "it has other arguments than node 0: bash -c")
        self.assert_prints(jobs[1], "in there, value 1, argument 1.")

    def test_each_command_shows_its_whole_output(self):
        jobs = self.nodes(2, "--show", "all", bash('seq 300000; echo "end of $RANK"'), slots=1)
        self.ends_with(0, *jobs)
        for rank, job in enumerate(jobs):
            lines = [line.split("] ", 1)[1] for line in job.stdout.splitlines()]
            self.assertEqual([str(i) for i in range(1, 300001)] + [f"end of {rank}"], lines)

    def test_standalone_needs_no_other_node(self):
        code, job = self.run_job("--standalone", "--nproc-per-node", "2", "--show", "all", bash(PLACE))
        self.assert_code(0, code, job)
        self.assert_prints(job, "rank=0 local=0 world=2 group=0", "rank=1 local=1 world=2 group=0")
        self.assert_nothing_left()


class Failures(PerNodeCase):
    def test_failed_rank_ends_all_commands_with_its_code(self):
        for failing in (1, 2):
            with self.subTest(rank=failing):
                jobs = self.nodes(2, bash(FAILS % failing))
                self.ends_with(7, *jobs)
                self.assert_prints(jobs[0], rf"rank {failing} \(node{failing // 2}, local rank {failing % 2}\) exited with "
                                            "code 7", "the reason", "exit code 7")
                self.assert_prints(jobs[1], rf"dslaunch: rank {failing} .* exited with code 7 .*; exit code 7, see node 0")

    def test_program_missing_on_one_node_ends_all_commands(self):
        program = self.folder / "here" / "train.sh"
        program.parent.mkdir()
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        jobs = [self.node(0, program), self.node(1, self.folder / "there" / "train.sh")]
        self.ends_with(127, *jobs)
        for job in jobs:
            self.assert_prints(job, r"node1: program '\S+/there/train.sh': No such file")

    def test_kill_of_node_0_ends_other_commands(self):
        jobs = self.nodes(3, bash(WAITS), slots=1)
        self.up(jobs, 3)
        jobs[0].signal(signal.SIGKILL)
        killed_at = time.time()
        for job in jobs[1:]:
            self.assert_code(UNAVAILABLE, self.wait(job, 8), job)
            self.assert_prints(job, r"node 0 \(\S+, 127\.0\.0\.1:\d+\) was lost: its command ended without a result; "
                                    r"no processes are left on this node")
        jobs[0].process.wait()
        self.assert_nothing_left(within_s=8, since=killed_at)

    def test_kill_of_another_node_ends_all_commands(self):
        jobs = self.nodes(3, bash(WAITS), slots=1)
        self.up(jobs, 3)
        jobs[1].signal(signal.SIGKILL)
        jobs[1].process.wait()
        self.ends_with(UNAVAILABLE, jobs[0], jobs[2])
        for job in (jobs[0], jobs[2]):
            self.assert_prints(job, "node1 was lost")

    def test_killed_supervisor_or_agent_ends_all_commands(self):
        for which in (0, 1):
            for node in (0, 1):
                with self.subTest(which=which, node=node):
                    jobs = self.nodes(2, bash(WAITS), slots=1)
                    self.up(jobs, 2)
                    os.kill(self.supervisor_and_agent_of(jobs[node])[which].pid, signal.SIGKILL)
                    self.ends_with(UNAVAILABLE, *jobs)
                    for job in jobs:
                        self.assert_prints(job, f"node{node} was lost")
                    for path in self.folder.glob("up.*"):
                        path.unlink()

    def test_signal_to_one_command_ends_all(self):
        for node, number, code in ((0, signal.SIGINT, 130), (1, signal.SIGINT, 130), (1, signal.SIGTERM, 143)):
            with self.subTest(node=node, signal=number):
                jobs = self.nodes(2, bash(WAITS), slots=1)
                self.up(jobs, 2)
                self.wait_for_output(jobs[1], "node1 runs rank 1")
                jobs[node].signal(number)
                self.ends_with(code, *jobs)
                if node == 1:
                    self.assert_prints(jobs[0], f"node1's command was interrupted by {signal.Signals(number).name}")
                for path in self.folder.glob("up.*"):
                    path.unlink()

    def test_second_ctrl_c_skips_grace(self):
        deaf = bash('trap "" TERM INT; touch "$FOLDER/up.$RANK"; sleep 60 & wait; sleep 60')
        jobs = self.nodes(2, "--grace", "30", deaf, slots=1)
        self.up(jobs, 2)
        self.wait_for_output(jobs[1], "node1 runs rank 1")
        jobs[1].signal(signal.SIGINT)
        time.sleep(0.5)
        self.assertTrue(jobs[0].running(), jobs[0].output)
        jobs[1].signal(signal.SIGINT)
        jobs[0].signal(signal.SIGINT)
        jobs[0].signal(signal.SIGINT)
        time.sleep(0.3)
        jobs[0].signal(signal.SIGINT)
        self.ends_with(130, *jobs, timeout_s=8)

    def test_ctrl_c_ends_a_waiting_command(self):
        for node in (0, 1):
            with self.subTest(node=node):
                job = self.node(node, "true")
                self.wait_for_output(job, "waiting|awaited" if node else "dslaunch: ")
                job.signal(signal.SIGINT)
                self.ends_with(130, job, timeout_s=5)
                self.assert_prints(job, "interrupted by SIGINT")

    def test_restarts_after_failed_rank(self):
        script = 'if [ $RANK = 1 ] && [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then exit 3; fi; sleep 0.5'
        jobs = self.nodes(2, "--max-restarts", "1", bash(script), slots=1)
        self.ends_with(0, *jobs)
        self.assert_prints(jobs[0], "with 1 restart")

    def test_killed_node_can_join_again(self):
        script = ': > "$FOLDER/up.$RANK.$TORCHELASTIC_RESTART_COUNT"; [ -e "$FOLDER/go" ] || exec sleep 60'
        jobs = self.nodes(2, "--max-restarts", "2", bash(script), slots=1)
        self.up(jobs, 2)
        (self.folder / "go").touch()
        jobs[1].signal(signal.SIGKILL)
        jobs[1].process.wait()
        again = self.node(1, "--max-restarts", "2", bash(script), slots=1)
        self.ends_with(0, jobs[0], again, timeout_s=60)
        self.assertTrue((self.folder / "up.1.1").exists(), jobs[0].output)


class Leaves(PerNodeCase):
    # In attempt 0 each rank saves when it gets SIGTERM. In later attempts it exits once "go" exists.
    SCRIPT = (': > "$FOLDER/up.$RANK.$TORCHELASTIC_RESTART_COUNT.$WORLD_SIZE"; '
              'trap \': > "$FOLDER/saved.$(hostname).$$"; exit 85\' TERM; '
              'while [ ! -e "$FOLDER/go" ]; do sleep 0.05; done')

    def elastic(self, rank):
        return self.node(rank, "--on_join", "now", bash(self.SCRIPT), nodes="1:2", slots=1,
                         conf="last_call_timeout=60")

    def left(self):
        """Returns the Jobs of node 0 and node 1. Node 1's command has received SIGTERM and has ended."""
        jobs = [self.elastic(rank) for rank in (0, 1)]
        self.up(jobs, 2)
        wait_until(lambda: "leads the job" in jobs[1].output, 5, "the command knows that its ranks run")
        jobs[1].signal(signal.SIGTERM)
        self.assert_code(85, self.wait(jobs[1], 20), jobs[1])
        return jobs

    def test_sigterm_to_one_command_removes_its_node(self):
        jobs = self.left()
        self.assert_prints(jobs[1], "SIGTERM: this node leaves the job; its ranks are stopped, and the others go on",
                           "left the job: every rank of this node has saved its state; no processes are left")
        self.wait_for_files(jobs[0], "up.0.0.1", 1)
        self.assertEqual(2, len(list(self.folder.glob("saved.*"))), jobs[0].output)
        (self.folder / "go").touch()
        self.ends_with(0, jobs[0])
        self.assert_prints(jobs[0], "attempt 1 ended: node1 left the job: its command received SIGTERM")
        self.assertNotIn("was lost", jobs[0].output)

    def test_node_that_left_can_join_again(self):
        jobs = self.left()
        self.wait_for_files(jobs[0], "up.0.0.1", 1)
        for path in self.folder.glob("up.*"):
            path.unlink()
        again = self.elastic(1)
        self.wait_for_files(jobs[0], "up.1.*.2", 1)
        (self.folder / "go").touch()
        self.ends_with(0, jobs[0], again)


class SentAway(PerNodeCase):
    def refused(self, job, code, *says):
        self.assert_code(code, self.wait(job, 20), job)
        self.assert_presentable(job)
        for pattern in says:
            self.assertRegex(job.stderr, pattern)
        self.assertFalse((self.folder / "started").exists(), "a program was started")

    def started(self, *names):
        return bash('touch "$FOLDER/started"')

    def test_refuses_commands_that_do_not_fit(self):
        first = self.node(0, self.started(), nodes=3)
        self.wait_for_output(first, "dslaunch: ")
        one = self.node(1, self.started(), nodes=3)
        self.wait_for_output(first, "node1 has joined")
        self.refused(self.node(0, self.started(), nodes=3), UNAVAILABLE, f"cannot listen on port {self.port}",
                     "another command with --node_rank 0")
        self.refused(self.node(1, self.started(), nodes=3), USAGE, "node 1 has joined already, from .* the same --node_rank")
        self.refused(self.node(1, self.started(), nodes=2), USAGE, "--nnodes is 3 on node 0 and 2 on")
        self.refused(self.node(2, "true", nodes=3), USAGE, "node 0 runs 'bash', .* runs another command: true")
        self.refused(self.node(2, "--rdzv-id", "other", self.started(), nodes=3), USAGE,
                     "--rdzv_id is 'none' on node 0 and 'other'")
        self.refused(self.node(3, self.started(), nodes=3), USAGE, "node_rank 3")
        self.assertEqual(4, first.stderr.count("refused a node"), first.stderr)
        first.signal(signal.SIGINT)
        self.assert_code(130, self.wait(one, 10), one)
        self.ends_with(130, first)

    def test_reports_port_used_by_another_program(self):
        with socket.create_server(("127.0.0.1", self.port)) as server:
            self.refused(self.node(0, self.started()), UNAVAILABLE, f"port {self.port}: Address already in use")
            member = self.node(1, self.started())
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                self.refused(member, UNAVAILABLE, "is not dslaunch's node 0")

    def test_join_timeout_names_missing_nodes(self):
        self.refused(self.node(1, self.started(), conf="join_timeout=1"), TIMED_OUT,
                     r"node 0 \(127\.0\.0\.1:\d+\) was not reachable within 1 s \(Connection refused\)")
        self.refused(self.node(0, self.started(), conf="join_timeout=1"), TIMED_OUT,
                     "only 1 of 2 nodes has joined after 1 s, missing: node1")
        self.assert_nothing_left()

    def test_job_succeeds_despite_garbage_connections(self):
        first = self.node(0, "--show", "all", bash(PLACE), slots=1)
        self.wait_for_output(first, "dslaunch: ")
        strangers = []
        for words in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"SSH-2.0-x\r\n", os.urandom(4096), b"", b"\x04\0\0\0abcd",
                      b"\xff\xff\0\0" + b"x" * 100):
            stranger = socket.create_connection(("127.0.0.1", self.port))
            stranger.sendall(words)
            strangers.append(stranger)
        flood = [socket.create_connection(("127.0.0.1", self.port)) for _ in range(200)]
        jobs = [first, self.node(1, "--show", "all", bash(PLACE), slots=1)]
        self.ends_with(0, *jobs)
        self.assertEqual(1, first.stderr.count("refused an unknown connection"), first.stderr)
        for stranger in strangers + flood:
            stranger.close()

    def test_closes_silent_connection_in_time(self):
        first = self.node(0, "true", slots=1)
        self.wait_for_output(first, "dslaunch: ")
        with socket.create_connection(("127.0.0.1", self.port)) as stranger:
            stranger.settimeout(10)
            begin = time.monotonic()
            self.assertEqual(b"", stranger.recv(1), "it was answered")
            self.assertLess(time.monotonic() - begin, 8)
        self.ends_with(0, first, self.node(1, "true", slots=1))


class Recorder:
    """Forwards bytes between its clients and `port`, and records them."""

    def __init__(self, port):
        self.bytes = bytearray()
        self._to = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                here, _ = self._server.accept()
            except OSError:  # closed at the end of the test
                return
            try:
                there = socket.create_connection(("127.0.0.1", self._to))
            except OSError:  # node 0 does not listen yet; the client gets a reset and dials again
                here.close()
                continue
            for a, b in ((here, there), (there, here)):
                threading.Thread(target=self._carry, args=(a, b), daemon=True).start()

    def _carry(self, source, target):
        try:
            while data := source.recv(65536):
                self.bytes += data
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self):
        self._server.close()


class InTheClear(PerNodeCase):
    """Tests connections without a token, which are not encrypted. Node 0 must not send data that each node has
    itself."""

    def test_sends_no_variables_arguments_or_folders(self):
        recorder = Recorder(self.port)
        self.addCleanup(recorder.close)
        secrets = [f"{name}-{os.urandom(8).hex()}" for name in ("variable", "plain", "argument", "folder")]
        jobs = []
        for rank, port in ((0, self.port), (1, recorder.port)):
            self.port = port
            own = [f"{secret}-of-{rank}" for secret in secrets]
            folder = self.folder / own[3]
            folder.mkdir()
            script = folder / "run.sh"
            script.write_text('#!/bin/bash\n[ "$HF_TOKEN" = "$2" ] && echo "rank $RANK has its own"\n')
            script.chmod(0o755)
            jobs.append(self.node(rank, "--insecure_rdzv", "--show", "all", "--env", f"HF_TOKEN={own[0]}", script, f"--api_key={own[2]}",
                                  own[0], slots=1, cwd=str(folder), env={**self.env, "NAME_IN_ENVIRONMENT": own[1]}))
        self.ends_with(0, *jobs)
        self.assert_prints(jobs[1], "rank 1 has its own")
        sent = bytes(recorder.bytes)
        self.assertIn(b"run.sh", sent, "nothing was recorded")
        for secret in [secrets[0], secrets[1], secrets[2], "PRIVATE KEY"]:
            self.assertNotIn(secret.encode(), sent)
        self.assertNotIn(f"{secrets[3]}-of-0".encode(), sent, "node 0's folder is no member's business")


class Token(PerNodeCase):
    def token(self, name="token", mode=0o600):
        path = self.folder / name
        path.write_text(os.urandom(16).hex() + "\n")
        path.chmod(mode)
        return path

    def with_token(self, rank, path, *rest, **options):
        return self.node(rank, "--rdzv_token_file", path, *rest, **options)

    def test_commands_with_the_same_token_form_one_job(self):
        token = self.token()
        jobs = [self.with_token(rank, token, "--show", "all", bash(PLACE), nodes=3, slots=1) for rank in range(3)]
        self.ends_with(0, *jobs)
        for rank, job in enumerate(jobs):
            self.assert_prints(job, rf"rank={rank} local=0 world=3", "3 ranks on 3 nodes succeeded")

    def test_failed_rank_ends_all_commands_with_its_code(self):
        token = self.token()
        jobs = [self.with_token(rank, token, bash(FAILS % 2)) for rank in range(2)]
        self.ends_with(7, *jobs)
        self.assert_prints(jobs[0], r"rank 2 \(node1, local rank 0\) exited with code 7", "the reason")
        self.assert_prints(jobs[1], "rank 2 .* exited with code 7 .*; exit code 7, see node 0")

    def test_each_command_shows_its_whole_output(self):
        token = self.token()
        jobs = [self.with_token(rank, token, "--show", "all", bash('seq 300000; echo "end of $RANK"'), slots=1)
                for rank in range(2)]
        self.ends_with(0, *jobs)
        for rank, job in enumerate(jobs):
            lines = [line.split("] ", 1)[1] for line in job.stdout.splitlines()]
            self.assertEqual([str(i) for i in range(1, 300001)] + [f"end of {rank}"], lines)

    def test_reads_token_from_descriptor(self):
        words = os.urandom(16).hex().encode()
        jobs = []
        for rank in range(2):
            reader, writer = os.pipe()
            os.write(writer, words)
            os.close(writer)
            self.pass_fds = (reader,)
            jobs.append(self.node(rank, "--show", "all", bash('echo "$RANK has ${DSLAUNCH_RDZV_TOKEN_FD-none}"'), slots=1,
                                  env={**self.env, "DSLAUNCH_RDZV_TOKEN_FD": str(reader)}))
            os.close(reader)
        self.ends_with(0, *jobs)

    pass_fds = ()

    def popen(self, argv, env, cwd, **options):
        return super().popen(argv, env, cwd, pass_fds=self.pass_fds, **options)

    def test_explains_wrong_or_missing_token(self):
        first = self.with_token(0, self.token(), bash('touch "$FOLDER/started"'), slots=1)
        self.wait_for_output(first, "dslaunch: waiting")
        other = self.with_token(1, self.token("other"), bash("true"), slots=1)
        self.assert_code(NO_PERMISSION, self.wait(other, 20), other)
        self.assert_prints(other, "it has another token; give the commands of all nodes the same token")
        none = self.node(1, bash("true"), slots=1)
        self.wait_for_output(none, "it closed the connection; if it has a --rdzv_token_file, give it here too")
        none.signal(signal.SIGINT)
        self.assert_code(130, self.wait(none, 20), none)
        self.assert_prints(first, r"refused an unknown connection from 127\.0\.0\.1: it has another token")
        self.assertFalse((self.folder / "started").exists(), "a program was started")
        first.signal(signal.SIGINT)
        self.ends_with(130, first)

    def test_explains_token_that_node_0_lacks(self):
        first = self.node(0, bash("true"), slots=1)
        self.wait_for_output(first, "dslaunch: waiting")
        member = self.with_token(1, self.token(), bash("true"), slots=1)
        self.wait_for_output(member, "if it has no --rdzv_token_file, leave it out here")
        for job in (member, first):
            job.signal(signal.SIGINT)
        self.ends_with(130, member, first)

    def test_rejects_unusable_token_files(self):
        for path, says in ((self.token(mode=0o644), "chmod 600"), (self.folder / "none", "No such file"),
                           (self.folder, "not a file")):
            job = self.with_token(0, path, bash("true"))
            self.assert_code(BAD_INPUT, self.wait(job, 10), job)
            self.assert_prints(job, says)
        job = self.start("--launcher", "local", "--num_nodes", "2", "--rdzv_token_file", self.token(), "true")
        self.assert_code(USAGE, self.wait(job, 10), job)
        self.assert_prints(job, "--rdzv_token_file is for a job without SSH")

    def test_token_is_not_readable_elsewhere(self):
        token = self.token()
        words = token.read_text().strip().encode()
        jobs = [self.with_token(rank, token, bash(WAITS), slots=1) for rank in range(2)]
        self.up(jobs, 2)
        self.assert_secret_nowhere(words, but=token)
        jobs[0].signal(signal.SIGINT)
        self.ends_with(130, *jobs)
        self.assert_secret_nowhere(words, but=token)


if __name__ == "__main__":
    main()
