"""Tests that files that other users could have planted are ignored, and that files that they could read contain no
secrets."""

import json
import os
import signal
import subprocess
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from launcher_case import TWO_BY_TWO, LauncherCase, bash, main  # noqa: E402
from test_hosts import wait_until  # noqa: E402

BAD_INPUT, UNAVAILABLE, IO = 65, 69, 74
STRANGER = 54321
JOB = "20260101-000000-abcdef"


class Planted(LauncherCase):
    def evil(self):
        """Returns the paths of a program that creates a trace file, and of the trace file."""
        program = self.folder / "evil"
        program.write_text(f"#!/bin/sh\ntouch {self.folder}/ran\n")
        program.chmod(0o755)
        return program, self.folder / "ran"

    def plant_record(self):
        program, trace = self.evil()
        folder = self.folder / "state/dslaunch/jobs" / JOB
        folder.mkdir(parents=True)
        (folder / "job.json").write_text(json.dumps({
            "job": JOB, "pid": 0, "start_ticks": 0, "launcher": "ssh", "ssh_command": [str(program)],
            "nodes": [{"name": "w0", "host": "w0", "port": 0, "user": ""}], "argv": ["dslaunch"], "cwd": "/",
            "log_dir": "", "started_unix_ms": 1, "ended_unix_ms": 0, "exit_code": 0}))
        return folder, trace

    def test_rejects_state_folder_writable_by_others(self):
        folder, trace = self.plant_record()
        (self.folder / "state").chmod(0o777)
        for command in (["ps"], ["logs", JOB], ["stop", JOB]):
            code, job = self.run_job(command)
            self.assert_code(IO, code, job)
            self.assert_prints(job, "/state may be changed by others; chmod go-w", "set XDG_STATE_HOME")
        self.assertFalse(trace.exists(), "it was run")
        code, job = self.run_job("--launcher", "local", "true")
        self.assert_code(IO, code, job)
        self.assert_prints(job, "cannot make the log folder: .*/state may be changed by others", "--log_dir")

    def test_rejects_state_folder_of_another_user(self):
        folder, trace = self.plant_record()
        try:
            for path in (self.folder / "state", *(self.folder / "state").rglob("*")):
                os.chown(path, STRANGER, STRANGER)
        except PermissionError:
            self.skipTest("needs root")
        code, job = self.run_job("ps")
        self.assert_code(IO, code, job)
        self.assert_prints(job, f"/state is another user's, uid {STRANGER}")
        self.assertFalse(trace.exists(), "it was run")

    def test_own_record_is_used(self):
        """Runs the program from the user's own record. Without this test, the two tests above would prove nothing."""
        _, trace = self.plant_record()
        code, job = self.run_job("ps")
        self.assert_code(0, code, job)
        self.assertTrue(trace.exists(), "it was not run")

    def test_rejects_code_in_run_file_of_current_folder(self):
        program, trace = self.evil()
        hosts = self.folder / "hosts"
        hosts.write_text("w0 slots=1\n")
        file = self.folder / "dslaunch.yaml"
        file.write_text(f"launch:\n  ssh_command: {program}\n")
        code, job = self.run_job("--hostfile", hosts, "true")
        self.assert_code(BAD_INPUT, code, job)
        self.assert_prints(job, r"dslaunch.yaml:2:3: ssh_command runs code.*--run_file")
        file.write_text("launch:\n  num_gpus: 1\n")
        file.chmod(0o666)
        code, job = self.run_job("true")
        self.assert_code(BAD_INPUT, code, job)
        self.assert_prints(job, r"dslaunch.yaml may be changed by others \(mode 0666\); .*--run_file")
        file.unlink()
        variables = self.folder / ".deepspeed_env"
        variables.write_text("LD_PRELOAD=./evil.so\n")
        code, job = self.run_job("--launcher", "local", "true")
        self.assert_code(BAD_INPUT, code, job)
        self.assert_prints(job, r"\.deepspeed_env: LD_PRELOAD is not among the variables.*DS_ENV_FILE=")
        self.assertFalse(trace.exists(), "it was run")


class MasterPort(LauncherCase):
    PROGRAM = """
import os, socket, sys, time
rank, port = os.environ["RANK"], int(os.environ["MASTER_PORT"])
if rank == "0" and sys.argv[1] == "listens":
    store = socket.create_server(("", port))
elif rank == "0":
    open("port", "w").write(str(port))
time.sleep(float(sys.argv[2]))
"""
    STRANGER = """
import os, socket, sys, time
os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[2]))
store = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listens", flush=True)
time.sleep(60)
"""

    def start_two(self, *arguments):
        return self.start("--launcher", "local", "--num_gpus", "2", sys.executable, "-c", self.PROGRAM, *arguments)

    def test_stranger_on_master_port_fails_the_job(self):
        job = self.start_two("is late", 60)
        self.wait_for_files(job, "port", 1)
        wait_until(lambda: (self.folder / "port").read_text(), 5)
        port = (self.folder / "port").read_text()
        stranger = subprocess.Popen([sys.executable, "-c", self.STRANGER, port, str(STRANGER)], stdout=subprocess.PIPE)
        self.addCleanup(stranger.communicate)
        self.addCleanup(stranger.kill)
        if stranger.stdout.readline() != b"listens\n":
            self.skipTest("needs root")
        self.assert_code(UNAVAILABLE, self.wait(job, 20), job)
        self.assert_prints(job, rf"a program of another user \(uid {STRANGER}\) listens at port {port}, MASTER_PORT, "
                           r"before rank 0 does; choose another with --master_port")
        self.assert_nothing_left()

    PASSED = """
import os, pathlib, socket, sys, time
rank, port, attempt = os.environ["RANK"], int(os.environ["MASTER_PORT"]), os.environ["DSLAUNCH_ATTEMPT"]
if rank == "0":
    store = socket.socket(fileno=int(os.environ["DSLAUNCH_STORE_FD"]))
    assert store.getsockname()[1] == port, store.getsockname()
    pathlib.Path("port" + attempt).write_text(str(port))
    connection, _ = store.accept()
    connection.sendall(b"hello")
    sys.exit(1 if attempt == "1" else 0)
assert "DSLAUNCH_STORE_FD" not in os.environ
while not os.path.exists("go" + attempt):
    time.sleep(0.05)
assert socket.create_connection(("127.0.0.1", port)).recv(5) == b"hello"
"""

    def test_passed_socket_keeps_master_port_reserved(self):
        """No other user may listen on the port from before rank 0 starts until it ends, nor in the next attempt."""
        job = self.start("--launcher", "local", "--num_gpus", "2", "--master_listen_fd", "--max_restarts", "1",
                         sys.executable, "-c", self.PASSED)
        for attempt in (1, 2):
            port_file = self.folder / f"port{attempt}"
            self.wait_for_files(job, port_file.name, 1)
            wait_until(port_file.read_text, 5)
            stranger = subprocess.run([sys.executable, "-c", self.STRANGER, port_file.read_text(), str(STRANGER)],
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
            self.assertIn("Address already in use", stranger.stderr)
            (self.folder / f"go{attempt}").touch()
        self.assert_code(0, self.wait(job), job)

    def test_rank_0_listening_on_master_port_succeeds(self):
        job = self.start_two("listens", 1)
        self.assert_code(0, self.wait(job), job)


class Memory(LauncherCase):
    def popen(self, argv, env, cwd, **options):
        return super().popen(["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups", *argv], env, cwd,
                             **options)

    def test_ranks_cannot_read_memory_of_dslaunch(self):
        """A process that is not dumpable belongs to root in /proc, so only root can read its memory and attach to
        it."""
        if os.geteuid() != 0:
            self.skipTest("needs root")
        os.chown(self.folder, STRANGER, STRANGER)
        job = self.start("--launcher", "local", "--num_nodes", "2", "--num_gpus", "1", bash("touch rank$RANK; sleep 60"))
        self.wait_for_files(job, "rank?", 2)
        owners = {}
        for process in self.leftovers():
            owners.setdefault(process.name, set()).add(os.stat(f"/proc/{process.pid}/environ").st_uid)
        self.assertEqual({0}, owners.pop("dslaunch"), owners)
        self.assertEqual({0}, owners.pop("dslaunch-agent"), owners)
        self.assertEqual({STRANGER}, owners.pop("sleep"), owners)
        job.signal(signal.SIGTERM)
        self.wait(job)


class Secrets(LauncherCase):
    def test_files_and_output_of_a_job_contain_no_secret(self):
        shared = ["--env", "DATABASE_URL=postgres://u:s3cret@h/db", "--env", "MY_THING=s3cret", "--env", "FROM_HERE"]
        program = [*bash("[ ${#FROM_HERE} = 6 ]"), "--apikey=s3cret", "--header", "Authorization: Bearer s3cret",
                   "--password", "s3cret", "https://h/?token=s3cret"]
        env = {"FROM_HERE": "s3cret"}
        code, job = self.run_job(TWO_BY_TWO, "--log_level", "debug", *shared, *program, env=env)
        self.assert_code(0, code, job)
        report = self.folder / "report.html"
        outputs = [job.output]
        for command in (["ps", "--all"], ["ps", "--all", "--json"], ["report", "last", "-o", report]):
            code, job = self.run_job(*command)
            self.assert_code(0, code, job)
            outputs.append(job.output)
        for options in ([], ["--json"]):
            code, job = self.run_job(TWO_BY_TWO, "--dry_run", *options, *shared, *program, env=env)
            self.assert_code(0, code, job)
            outputs.append(job.output)
        for output in outputs:
            self.assertNotIn("s3cret", output)
        self.assertIn("***", outputs[-1])
        files = [path for path in (self.folder / "state").rglob("*") if path.is_file()]
        self.assertIn("events.jsonl", [path.name for path in files])
        for path in (*files, report):
            self.assertNotIn(b"s3cret", path.read_bytes(), f"{path} has a secret")


if __name__ == "__main__":
    main()
