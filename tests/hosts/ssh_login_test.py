"""Tests how dslaunch logs in: ssh_config, the ssh-agent's keys, questions at a terminal, and another ssh program."""

import os
import pty
import re
import signal
import subprocess
import sys
import termios
import time

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from hosts_case import main  # noqa: E402
from launcher_case import DSLAUNCH, MARK  # noqa: E402
from ssh_case import NO_PERMISSION, RANKS, UNAVAILABLE, SshCase  # noqa: E402
from test_hosts import wait_until  # noqa: E402

PASSWORD = "cor rect%h$(x)'horse"
PASSPHRASE = "open \"sesame\""
KEY = ".ssh/id_ed25519"


class AtATerminal:
    """dslaunch on the front host with its own terminal, and the text that the terminal has received."""

    def __init__(self, case, *arguments):
        self.case = case
        ours, theirs = pty.openpty()
        self._ours = ours
        os.set_blocking(ours, False)
        self.shown = ""
        self.before = termios.tcgetattr(theirs)
        env = case.front.environment({MARK: case.mark, "TERM": "xterm"})
        argv = case.front.command(["setsid", "--ctty", "--wait", DSLAUNCH, *arguments])
        self.process = subprocess.Popen(argv, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
        self._theirs = theirs  # kept open, because its settings are read at the end
        case.addCleanup(os.close, ours)
        case.addCleanup(os.close, theirs)
        case.addCleanup(self.process.kill)

    def read(self):
        try:
            self.shown += os.read(self._ours, 65536).decode(errors="replace")
        except OSError:
            pass
        return self.shown

    def wait_for(self, pattern, timeout_s=20):
        def seen():
            return re.search(pattern, self.read()) or self.process.poll() is not None
        wait_until(seen, timeout_s, f"{pattern} at the terminal")
        self.case.assertRegex(self.read(), pattern)

    def type(self, text):
        os.write(self._ours, text.encode())

    def wait(self, timeout_s=30):
        wait_until(lambda: self.read() is None or self.process.poll() is not None, timeout_s, "its end")
        time.sleep(0.1)
        self.read()
        return self.process.returncode

    def echoes(self):
        return bool(termios.tcgetattr(self._theirs)[3] & termios.ECHO)


class Keys(SshCase):
    # sshd ends the login at the third failed key.
    host_options = {"sshd_options": {"MaxAuthTries": "3"}}

    def setUp(self):
        super().setUp()
        self.agent_env = {"SSH_AUTH_SOCK": f"/run/agent-{os.getpid()}-{time.monotonic_ns()}"}
        agent = self.front.popen(["ssh-agent", "-D", "-a", self.agent_env["SSH_AUTH_SOCK"]], stdout=subprocess.DEVNULL)
        self.addCleanup(agent.wait, 10)
        self.addCleanup(lambda: os.kill(agent.inner_pid, signal.SIGKILL))
        self.agent_pid = agent.inner_pid
        wait_until(lambda: self.in_front(["ssh-add", "-l"]).returncode == 1, 10, "ssh-agent")

    def leftovers(self):
        return [process for process in super().leftovers() if process.pid != self.agent_pid]

    def in_front(self, argv, **options):
        return self.front.run(argv, env=self.agent_env, **options)

    def job_with_agent(self, nodes=("node1", "node2")):
        code, job = self.run_job("--hostfile", self.hostfile(nodes), "--num_nodes", str(len(nodes)), "--num_gpus", "1",
                                 [*RANKS, str(self.folder)], env=self.agent_env)
        self.assert_presentable(job)
        return code, job

    def hide_key(self, *suffixes):
        """Moves the front's key away for this test; returns the new path."""
        hidden = self.front.outside_path(".ssh/hidden_key")
        for suffix in ("", *suffixes):
            path = self.front.outside_path(KEY + suffix)
            other = hidden.with_name(hidden.name + suffix)
            path.rename(other)
            self.addCleanup(other.rename, path)
        return f"{self.front.home}/.ssh/hidden_key"

    def add_wrong_keys(self, count):
        folder = self.front.write_file("keys/.made", "").rsplit("/", 1)[0]
        for i in range(count):
            self.in_front(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"wrong-{i}", "-f", f"{folder}/{i}"])
            self.in_front(["ssh-add", "-q", f"{folder}/{i}"])
            os.unlink(self.front.outside_path(f"{folder}/{i}"))

    def test_uses_key_of_ssh_agent(self):
        key = self.hide_key()
        self.in_front(["ssh-add", "-q", key])
        code, job = self.job_with_agent()
        self.assert_code(0, code, job)
        self.assertEqual(2, self.ranks_started())

    def test_explains_too_many_keys_and_follows_identity(self):
        key = self.hide_key()
        self.add_wrong_keys(5)
        self.in_front(["ssh-add", "-q", key])
        code, job = self.job_with_agent()
        self.assert_code(NO_PERMISSION, code, job)
        self.assert_prints(job, "wrong-0 .agent.", "IdentitiesOnly")
        # The public key selects one of the keys in the ssh-agent.
        self.front.write_file(".ssh/chosen.pub", self.in_front(["ssh-keygen", "-y", "-f", key]).stdout)
        for more in ("", "  IdentitiesOnly yes\n"):
            self.configure("Host node*\n  IdentityFile ~/.ssh/chosen.pub\n" + more)
            code, job = self.job_with_agent()
            self.assert_code(0, code, job)

    def test_identities_only_skips_keys_of_ssh_agent(self):
        key = self.hide_key()
        self.in_front(["ssh-add", "-q", key])
        self.configure("Host node*\n  IdentitiesOnly yes\n")
        code, job = self.job_with_agent()
        self.assert_code(NO_PERMISSION, code, job)
        self.assert_prints(job, "keys tried: none")

    def test_explains_locked_key_without_terminal(self):
        self.lock_key()
        code, job = self.job_with_agent()
        self.assert_code(NO_PERMISSION, code, job)
        self.assert_prints(job, r"with a passphrase that was not given: \S*id_ed25519", "ssh-add")

    def lock_key(self):
        path = f"{self.front.home}/{KEY}"
        self.in_front(["ssh-keygen", "-q", "-p", "-f", path, "-N", PASSPHRASE, "-P", ""])
        self.addCleanup(self.in_front, ["ssh-keygen", "-q", "-p", "-f", path, "-P", PASSPHRASE, "-N", ""])

    def test_asks_for_passphrase_once(self):
        self.lock_key()
        terminal = AtATerminal(self, "--hostfile", self.hostfile(["node1", "node2"]), "--num_nodes", "2",
                               "--num_gpus", "1", *RANKS, str(self.folder))
        terminal.wait_for("passphrase of the key .*id_ed25519: ")
        self.assertFalse(terminal.echoes())
        terminal.type(PASSPHRASE + "\n")
        self.assertEqual(0, terminal.wait(), terminal.shown)
        self.assertEqual(1, terminal.shown.count("passphrase of"), terminal.shown)
        self.assertNotIn(PASSPHRASE, terminal.shown)
        self.assertTrue(terminal.echoes())
        self.assertEqual(2, self.ranks_started())


class Passwords(SshCase):
    host_options = {"sshd_options": {"PasswordAuthentication": "yes", "PubkeyAuthentication": "no",
                                     "PermitRootLogin": "yes"}, "password": PASSWORD}

    def options(self):
        return ["--hostfile", self.hostfile(["node1", "node2"]), "--num_nodes", "2", "--num_gpus", "1"]

    def test_suggests_keys_if_password_cannot_be_typed(self):
        code, job = self.run_job(*self.options(), RANKS, str(self.folder))
        self.assert_code(NO_PERMISSION, code, job)
        self.assert_prints(job, r"node1, node2 \(2 nodes\)", "offers password", "no terminal", "ssh-copy-id")

    def test_asks_for_password_once_per_node_without_echo(self):
        # The time that the user takes to answer must not count as the nodes' time.
        terminal = AtATerminal(self, *self.options(), "--connect_timeout", "3", *RANKS, str(self.folder))
        for number in (1, 2):
            terminal.wait_for(f"(password: (.|\n)*){{{number}}}")
            time.sleep(4 if number == 1 else 0)
            self.assertEqual(number, terminal.read().count("password: "), "two questions at once")
            for process in self.front.processes():
                self.assertNotIn(PASSWORD, " ".join(process.argv) + str(process.environ))
            terminal.type(PASSWORD + "\n")
        self.assertEqual(0, terminal.wait(), terminal.shown)
        self.assertNotIn(PASSWORD, terminal.shown)
        self.assertTrue(terminal.echoes())
        self.assertEqual(2, self.ranks_started())
        state = self.front.run(["grep", "-rlF", PASSWORD, self.front.home])
        self.assertEqual("", state.stdout)

    def test_does_not_ask_again_after_wrong_password(self):
        terminal = AtATerminal(self, *self.options(), *RANKS, str(self.folder))
        for _ in range(2):
            terminal.wait_for("password: $")
            terminal.type("wrong\n")
            terminal.shown = ""
        self.assertEqual(NO_PERMISSION, terminal.wait(), terminal.shown)
        self.assertRegex(terminal.shown, "the password or passphrase that was typed is wrong")

    def test_ctrl_c_at_question_restores_echo(self):
        terminal = AtATerminal(self, *self.options(), *RANKS, str(self.folder))
        terminal.wait_for("password: ")
        terminal.type("\x03")
        self.assertEqual(130, terminal.wait(10), terminal.shown)
        self.assertTrue(terminal.echoes())
        self.assert_nothing_left()


class OtherPrograms(SshCase):
    host_options = {"bastion": {}}

    def test_ssh_port_applies_unless_hostfile_sets_one(self):
        for more in ((), ("--ssh_command", "ssh -o BatchMode=yes")):
            self.refused(UNAVAILABLE, ["node1", "node2"], "--ssh_port", "2299", *more, says=["node1", "node2", "2299"])
        # A node's port in the hostfile takes precedence.
        path = self.hosts.hostfile(text="hosts:\n- {name: node1, slots: 1, port: 22}\n- {name: node2, slots: 1, port: 22}\n")
        code, job = self.run_job("--hostfile", path, "--ssh_port", "2299", *RANKS, str(self.folder))
        self.assert_code(0, code, job)
        self.assertEqual(2, self.ranks_started())

    def test_job_runs_with_system_ssh(self):
        self.configure("Host node2\n  ProxyJump bastion\n")
        code, job, _ = self.job_on(["node1", "node2"], "--connect_timeout", "50", "--ssh_command",
                                   "ssh -o BatchMode=yes", timeout_s=120)
        self.assert_code(0, code, job)
        self.assertEqual(2, self.ranks_started())
        self.assert_nothing_left()

    def test_quotes_message_of_system_ssh(self):
        self.configure("Host node2\n  ProxyJump bastion:2222\n")
        self.refused(UNAVAILABLE, ["node1", "node2"], "--ssh_command", "ssh",
                     says=["node2.* by ssh.*exit status 255; it printed: .*bastion port 2222.*refused"])
        self.configure("Host node2\n  UserKnownHostsFile /dev/null\n")
        self.refused(NO_PERMISSION, ["node1", "node2"], "--ssh_command", "ssh",
                     says=["node2.*it printed: .*verification failed"])

    def test_rejects_missing_ssh_program(self):
        self.refused(64, ["node1"], "--ssh_command", "no-such-ssh", says=["no program 'no-such-ssh'"])

    def test_system_ssh_ends_with_front_end(self):
        job = self.start("--hostfile", self.hostfile(["node1"]), "--num_nodes", "1", "--num_gpus", "1", "--launcher",
                         "ssh", "--ssh_command", "ssh", "sleep", "100")
        wait_until(lambda: self.hosts.nodes[0].named("sleep"), 20, "the rank runs")
        job.signal(signal.SIGKILL)
        self.wait(job)
        self.assert_nothing_left(10)

    def test_ssh_that_waits_for_host_ends_with_front_end(self):
        self.be_silent(self.hosts.nodes[1], [2201])
        job = self.start("--hostfile", self.hostfile(["node2:2201"]), "--launcher", "ssh", "--ssh_command", "ssh",
                         "true")
        wait_until(lambda: self.front.named("ssh"), 20, "ssh runs")
        job.signal(signal.SIGKILL)
        self.wait(job)
        self.assert_nothing_left(5)


if __name__ == "__main__":
    main()
