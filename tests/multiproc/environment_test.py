"""Tests the start of a rank: its environment variables and arguments, and that its process is clean."""

import json
import os
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from launcher_case import TWO_BY_TWO, LauncherCase, bash, main  # noqa: E402

# Writes everything that a process can observe about itself to report.RANK.
REPORT = r"""
import json, os, sys
status = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\t" in line)
fds = {}
for fd in os.listdir("/proc/self/fd"):
    try:
        fds[int(fd)] = os.readlink("/proc/self/fd/" + fd)
    except OSError:
        pass  # the one that listed
json.dump({
    "env": {os.fsdecode(k): v.hex() for k, v in os.environb.items()},
    "argv": [os.fsencode(word).hex() for word in sys.argv[1:]],
    "interpreter": sys.executable, "cwd": os.getcwd(), "fds": fds,
    "blocked": int(status["SigBlk"], 16), "ignored": int(status["SigIgn"], 16),
    "group": os.getpgrp() == os.getpid(), "stdin": os.read(0, 1).hex(),
}, open(os.environ["FOLDER"] + "/report." + os.environ["RANK"], "w"))
"""


class Environment(LauncherCase):
    def report(self, *options, arguments=(), env=None, ranks=4, cwd=None, program=None):
        """Runs the reporter in every slot. Returns the reports by rank, with `env` decoded."""
        script = self.folder / "report.py"
        script.write_text(REPORT)
        for old in self.folder.glob("report.[0-9]*"):
            old.unlink()
        code, job = self.run_job(*options, program or ["/usr/bin/python3", "-S", str(script)], *arguments,
                                 env={"FOLDER": str(self.folder), **(env or {})}, cwd=cwd)
        self.assert_code(0, code, job)
        reports = [json.loads((self.folder / f"report.{rank}").read_text()) for rank in range(ranks)]
        for report in reports:
            report["raw_env"] = {name: bytes.fromhex(value) for name, value in report["env"].items()}
            report["env"] = {name: value.decode(errors="replace") for name, value in report["raw_env"].items()}
        return reports

    def test_sets_variables_of_every_rank(self):
        reports = self.report(TWO_BY_TWO)
        for rank, report in enumerate(reports):
            env = report["env"]
            expected = {
                "RANK": rank, "LOCAL_RANK": rank % 2, "WORLD_SIZE": 4, "LOCAL_WORLD_SIZE": 2, "GROUP_RANK": rank // 2,
                "GROUP_WORLD_SIZE": 2, "LOCAL_SIZE": 2, "CROSS_RANK": rank // 2, "CROSS_SIZE": 2, "ROLE_RANK": rank,
                "ROLE_WORLD_SIZE": 4, "TORCHELASTIC_RESTART_COUNT": 0, "TORCHELASTIC_MAX_RESTARTS": 0,
                "TORCHELASTIC_USE_AGENT_STORE": False, "PYTHONUNBUFFERED": 1, "DSLAUNCH_ATTEMPT": 1, "DSLAUNCH_EPOCH": 1}
            self.assertEqual({name: str(value) for name, value in expected.items()},
                             {name: env.get(name) for name in expected}, f"rank {rank}")
            for name in ("ROLE_NAME", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "DSLAUNCH_JOB_ID",
                         "DSLAUNCH_RANK_DIR"):
                self.assertTrue(env.get(name), f"rank {rank}: {name}")
        for name in ("MASTER_ADDR", "MASTER_PORT", "DSLAUNCH_JOB_ID", "TORCHELASTIC_RUN_ID"):
            self.assertEqual(1, len({report["env"][name] for report in reports}), name)
        self.assertEqual(4, len({report["env"]["TORCHELASTIC_ERROR_FILE"] for report in reports}))
        self.assertTrue(1024 <= int(reports[0]["env"]["MASTER_PORT"]) <= 65535)

    def test_divides_cores_unless_omp_num_threads_is_set(self):
        cores = len(os.sched_getaffinity(0))
        env = {"OMP_NUM_THREADS": ""}
        environment = self.base_environment
        self.base_environment = lambda: {k: v for k, v in environment().items() if k != "OMP_NUM_THREADS"}
        self.assertEqual(str(max(1, cores // 2)), self.report(
            "--launcher", "local", "--num_gpus", "2", ranks=2)[0]["env"]["OMP_NUM_THREADS"])
        env = {"OMP_NUM_THREADS": "5"}
        self.assertEqual("5", self.report(TWO_BY_TWO, env=env)[3]["env"]["OMP_NUM_THREADS"])

    def test_two_jobs_use_different_ports(self):
        job = self.start(TWO_BY_TWO, bash("echo $MASTER_PORT > port.$RANK; exec sleep 30"))
        self.wait_for_files(job, "port.*", 4)
        port = self.report(TWO_BY_TWO)[0]["env"]["MASTER_PORT"]
        self.assertNotEqual(port, (self.folder / "port.0").read_text().strip())
        job.signal(2)
        self.wait(job, 8)

    def test_master_port_can_be_chosen(self):
        self.assertEqual("29517", self.report(TWO_BY_TWO, "--master_port", "29517")[0]["env"]["MASTER_PORT"])

    def test_rank_0_can_listen_on_master_port(self):
        script = """import os, socket
if os.environ["RANK"] == "0":
    listener = socket.create_server((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
    for _ in range(3):
        listener.accept()
else:
    import time
    for _ in range(200):
        try:
            socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), 1)
            break
        except OSError:
            time.sleep(0.05)
    else:
        raise SystemExit("rank 0 cannot be reached")
"""
        (self.folder / "listen.py").write_text(script)
        code, job = self.run_job(TWO_BY_TWO, "python3", self.folder / "listen.py")
        self.assert_code(0, code, job)

    def test_arguments_arrive_byte_for_byte(self):
        arguments = [b"two words", b"", b"'single'", b'"double"', b"$HOME", b"`id`", b"$(id)", b"a\\b", b"line\nbreak",
                     b"*", b"~", b"#", b";", b"--num_nodes", b"-1", b"\xff\xfe", "é".encode(), b'{"json": [1, "x"]}']
        for rank, report in enumerate(self.report(TWO_BY_TWO, arguments=arguments)):
            self.assertEqual(arguments, [bytes.fromhex(word) for word in report["argv"]], f"rank {rank}")

    def test_environment_arrives_byte_for_byte(self):
        env = {"MINE": "two words $HOME `id` \"'\nline", b"BYTES": b"\xff\xfe=x", "EMPTY": "", "lower_case": "x"}
        for report in self.report(TWO_BY_TWO, env=env):
            for name, value in env.items():
                self.assertEqual(os.fsencode(value), report["raw_env"][os.fsdecode(name)])

    def test_replaces_inherited_rank_variables(self):
        reports = self.report(TWO_BY_TWO, env={"RANK": "9", "WORLD_SIZE": "77", "LOCAL_RANK": "8",
                                               "MASTER_ADDR": "nowhere", "DSLAUNCH_STATUS_FD": "77"})
        self.assertEqual(["0", "1", "2", "3"], [report["env"]["RANK"] for report in reports])
        self.assertEqual({"4"}, {report["env"]["WORLD_SIZE"] for report in reports})
        self.assertNotIn("nowhere", reports[0]["env"]["MASTER_ADDR"])

    def test_ranks_start_with_default_signals_and_fds(self):
        for report in self.report(TWO_BY_TWO):
            self.assertEqual(0, report["blocked"], "blocked signals")
            # Python itself ignores SIGPIPE and SIGXFSZ.
            self.assertEqual(0, report["ignored"] & ~(1 << 12 | 1 << 24), "ignored signals")
            self.assertEqual("", report["stdin"], "stdin must be at its end")
            self.assertEqual("/dev/null", report["fds"]["0"])
            status_fd, mpi_fd = report["env"]["DSLAUNCH_STATUS_FD"], report["env"]["PMI_FD"]
            self.assertTrue(report["fds"][status_fd].startswith(("pipe:", "socket:")), report["fds"])
            self.assertTrue(report["fds"][mpi_fd].startswith("socket:"), report["fds"])
            self.assertEqual({"0", "1", "2", status_fd, mpi_fd}, set(report["fds"]) - self.own_fds(report))
            self.assertTrue(report["group"], "a process group of its own")
            self.assertEqual(str(self.folder), report["cwd"])

    def test_working_directory_keeps_its_symlink_name(self):
        (self.folder / "real").mkdir()
        (self.folder / "link").symlink_to("real")
        link = str(self.folder / "link")
        for report in self.report(TWO_BY_TWO, cwd=link, env={"PWD": link}):
            self.assertEqual(link, report["env"]["PWD"])
            self.assertEqual(str(self.folder / "real"), report["cwd"])
        report = self.report(TWO_BY_TWO, env={"PWD": link})[0]
        self.assertEqual(str(self.folder), report["env"]["PWD"], "PWD of another folder")

    def own_fds(self, report):
        """Returns the descriptors that the reporter itself has open: its report, and the folder that it lists."""
        return {fd for fd, target in report["fds"].items() if "/report." in target or target.startswith("/proc/")}

    def test_ranks_do_not_inherit_ignored_signals(self):
        # `nohup dslaunch` and shells' background jobs ignore SIGHUP and SIGINT, so dslaunch may start with them
        # ignored.
        argv = ["bash", "-c", 'trap "" INT HUP PIPE; exec "$@"', "-"]
        popen = self.popen
        self.popen = lambda words, *rest, **options: popen([*argv, *words], *rest, **options)
        for report in self.report(TWO_BY_TWO):
            self.assertEqual(0, report["ignored"] & ~(1 << 12 | 1 << 24))

    def test_script_needs_no_execute_bit(self):
        script = self.folder / "report.py"
        self.report(TWO_BY_TWO, program=[str(script)])
        self.report(TWO_BY_TWO, program=["report.py"])

    def test_interpreter_can_be_chosen(self):
        chosen = self.folder / "chosen"
        chosen.mkdir()
        (chosen / "python3").symlink_to("/usr/bin/python3")
        script = str(self.folder / "report.py")
        reports = self.report(TWO_BY_TWO, program=[script], env={"PYTHON_EXEC": str(chosen / "python3")})
        self.assertEqual(str(chosen / "python3"), reports[0]["interpreter"])
        (chosen / "bin").mkdir()
        (chosen / "bin" / "python3").symlink_to("/usr/bin/python3")
        reports = self.report(TWO_BY_TWO, program=[script], env={"VIRTUAL_ENV": str(chosen)})
        self.assertEqual(str(chosen / "bin" / "python3"), reports[0]["interpreter"])

    def test_secrets_are_not_in_arguments(self):
        # A key or certificate on a command line could be read by every user of the machine.
        job = self.start(TWO_BY_TWO, bash(": > up.$RANK; exec sleep 30"))
        self.wait_for_files(job, "up.*", 4)
        for process in self.leftovers():
            self.assertNotIn("PRIVATE KEY", " ".join(process.argv))
            if not process.name.startswith("dslaunch"):
                self.assertFalse([name for name, value in process.environ.items() if "PRIVATE KEY" in value])
        job.signal(2)
        self.wait(job, 8)


if __name__ == "__main__":
    main()
