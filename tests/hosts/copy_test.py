"""Tests --copy and --copy_dir, which copy programs and folders to nodes that do not have them, over real SSH."""

import hashlib
import os
import pathlib
import random
import signal
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from hosts_case import HostsCase, main  # noqa: E402
from test_hosts import wait_until  # noqa: E402

PROJECT = "/mnt/project"  # folder on a disk that only the front end mounts
BIG_BYTES = 30_000_000
PROGRAM = """#!/bin/sh
echo "$(hostname) has $(cat data/in.txt) in $(pwd)"
[ "$(pwd)" = "$DSLAUNCH_COPY_DIR" ]
"""


class CopyCase(HostsCase):
    def copy_hosts(self, **options):
        self.fresh_hosts(**options)
        done = self.front.run(["sh", "-c", f"mount -t tmpfs tmpfs /mnt && mkdir -p {PROJECT}/data"])
        self.assertEqual(0, done.returncode, done.stderr)
        for node in self.hosts.nodes:
            self.assertNotEqual(0, node.run(["test", "-e", PROJECT]).returncode, "the node has it already")

    def write(self, name, content, mode=0o644):
        path = pathlib.Path(f"/proc/{self.front.init_pid}/root{PROJECT}/{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(mode)

    def write_big(self, seed=1):
        content = random.Random(seed).randbytes(BIG_BYTES)
        self.write("big", content)
        return hashlib.sha256(content).hexdigest()

    def job(self, *arguments, timeout_s=120):
        return self.run_job("--hostfile", self.hosts.hostfile(slots=1), "--show", "all", *arguments, cwd=PROJECT,
                            timeout_s=timeout_s)

    def sent_bytes(self):
        return int(self.front.run(["cat", "/sys/class/net/eth0/statistics/tx_bytes"]).stdout)

    def on_node(self, node, script):
        return node.run(["sh", "-c", f"cd {node.home}/.cache/dslaunch/copies && {script}"]).stdout

    def places(self, node):
        return [name for name in self.on_node(node, "ls -A").split() if not name.startswith((".lock-", ".done-"))]


class Programs(CopyCase):
    def test_runs_copied_program_and_copies_changes(self):
        self.copy_hosts()
        self.write("a.out", PROGRAM, 0o755)
        self.write("data/in.txt", "one")
        code, job = self.job("--copy", "./a.out", "--copy", "data/in.txt", "./a.out")
        self.assert_code(0, code, job)
        self.assert_prints(job, "copying 2 files", "node1 has one in /.*/copies/[0-9a-f]{64}", "node2 has one in")
        for node in self.hosts.nodes:
            self.assertEqual("755 a.out\n644 data/in.txt\n", self.on_node(node, "cd */ && stat -c '%a %n' a.out data/in.txt"))
        self.write("data/in.txt", "two")  # a changed file is copied again, and the old copy is kept
        code, job = self.job("--copy", "a.out", "--copy", "data/in.txt", "./a.out")
        self.assert_code(0, code, job)
        self.assert_prints(job, "node1 has two", "node2 has two")
        self.assertEqual(2, len(self.places(self.hosts.nodes[0])))
        self.assert_nothing_left()

    def test_copies_links_and_odd_file_names(self):
        self.copy_hosts()
        self.write("tool/bin/run", "#!/bin/sh\ncat tool/link \"tool/a\nb\"\n", 0o755)
        self.write("tool/text", "linked ")
        self.write("tool/a\nb", "odd\n")
        os.symlink("text", f"/proc/{self.front.init_pid}/root{PROJECT}/tool/link")
        code, job = self.job("--copy_dir", "tool", "tool/bin/run")
        self.assert_code(0, code, job)
        self.assert_prints(job, "node1.*linked odd", "node2.*linked odd")
        code, job = self.job("--copy_dir", "tool", "--chdir", "/", f"{PROJECT}/tool/bin/run")
        self.assertNotEqual(0, code)
        self.assert_prints(job, "cat: tool/link")  # the program runs, but in another folder

    def test_reuses_copy_and_repairs_spoiled_file(self):
        self.copy_hosts(count=1)
        digest = self.write_big()
        arguments = ["--copy", "big", "sha256sum", "big"]
        self.assert_code(0, *self.job(*arguments))
        before = self.sent_bytes()
        code, job = self.job(*arguments)
        self.assert_code(0, code, job)
        self.assertLess(self.sent_bytes() - before, BIG_BYTES / 10)
        node, = self.hosts.nodes
        self.on_node(node, "echo x >> */big")
        code, job = self.job(*arguments)
        self.assert_code(0, code, job)
        self.assert_prints(job, digest)

    def test_copies_through_relays(self):
        self.copy_hosts(count=3, nodes_log_in=True)
        self.write("a.out", PROGRAM, 0o755)
        self.write("data/in.txt", "it")
        code, job = self.job("--fanout", "3", "--copy_dir", ".", "./a.out")
        self.assert_code(0, code, job)
        self.assert_prints(job, "node1 has it", "node2 has it", "node3 has it")


class Networks(CopyCase):
    def test_shared_home_gets_one_copy(self):
        self.copy_hosts(count=3, shared_home=True)
        digest = self.write_big()
        before = self.sent_bytes()
        code, job = self.job("--copy", "big", "sha256sum", "big")
        self.assert_code(0, code, job)
        self.assertEqual(3, job.output.count(digest), job.output)
        sent = self.sent_bytes() - before
        self.assertLess(sent, BIG_BYTES * 2 - BIG_BYTES / 4, "more than the agent and one copy")

    def test_resumes_interrupted_copy(self):
        self.copy_hosts(count=1)
        node, = self.hosts.nodes
        self.assert_code(0, *self.job("--chdir", "/", "true"))  # copies the agent first, so that it is not copied later
        digest = self.write_big()
        slow = ["dev", "eth0", "root", "tbf", "rate", "16mbit", "burst", "64kb", "latency", "200ms"]
        self.assertEqual(0, self.front.run(["tc", "qdisc", "add", *slow]).returncode)
        arguments = ["--copy", "big", "sha256sum", "big"]
        job = self.start("--hostfile", self.hosts.hostfile(slots=1), *arguments, cwd=PROJECT)

        def arrived():
            return int(self.on_node(node, "cat .part-*/0 | wc -c") or 0)
        wait_until(lambda: arrived() > BIG_BYTES / 4, 60, "a quarter has arrived")
        os.kill(job.pid, signal.SIGKILL)
        self.wait(job, 20)
        self.assert_nothing_left(within_s=20)
        self.front.run(["tc", "qdisc", "del", "dev", "eth0", "root"])
        there = arrived()
        before = self.sent_bytes()
        code, job = self.job(*arguments)
        self.assert_code(0, code, job)
        self.assert_prints(job, digest)
        self.assertLess(self.sent_bytes() - before, (BIG_BYTES - there) * 1.1 + 1_000_000)


class WrongInputs(CopyCase):
    def test_rejects_wrong_inputs_before_start(self):
        self.copy_hosts(count=1)
        self.write("a.out", PROGRAM, 0o755)
        os.symlink("/etc/passwd", f"/proc/{self.front.init_pid}/root{PROJECT}/data/out")
        for arguments, code, text in [
                (["--copy", "none", "true"], 65, "--copy 'none': No such file"),
                (["--copy", "data", "true"], 65, "--copy_dir copies folders"),
                (["--copy_dir", "a.out", "true"], 65, "--copy copies files"),
                (["--copy_dir", "data", "true"], 65, "data/out': this link leads out of the folder, to '/etc/passwd'"),
                (["--copy", "/proc/self/mem", "true"], 74, "cannot read '/proc/self/mem'"),
                (["--copy", "a.out", "train"], 64, "--copy: only what a program needs is copied")]:
            got, job = self.job(*arguments)
            self.assert_code(code, got, job)
            self.assertIn(text, job.output)
            self.assert_presentable(job)

    def test_reports_full_disk_on_node(self):
        self.copy_hosts(count=1)
        node, = self.hosts.nodes
        self.write_big()
        folder = f"{node.home}/.cache/dslaunch/copies"
        done = node.run(["sh", "-c", f"mkdir -m 700 -p {folder} && chmod 700 {node.home}/.cache/dslaunch && "
                         f"mount -t tmpfs -o size=8m,mode=700 tmpfs {folder}"])
        self.assertEqual(0, done.returncode, done.stderr)
        code, job = self.job("--copy", "big", "true")
        self.assert_code(74, code, job)
        self.assert_prints(job, "node1: --copy: there is no space for the copies: they need 30.0 MB", "--agent_dir")
        self.assert_nothing_left()


if __name__ == "__main__":
    main()
