#!/usr/bin/env python3
"""Runs test hosts: several "machines" on one, each with its own network, name, process table, HOME and sshd.

    with TestHosts(2) as hosts:
        front, (node1, node2) = hosts.front, hosts.nodes
        done = front.run([DSLAUNCH, "--hostfile", hosts.hostfile(slots=2), "hostname"])

or manually, until Ctrl-C:  sudo tests/support/test_hosts.py up 2

A host is a set of Linux namespaces below one "switch" (a network namespace with a bridge, itself below this process).
Nothing has a name outside of them, so parallel runs cannot clash, and nothing can be left behind:
when this process dies for any reason, the kernel ends the switch, its hosts and everything in them.

Each host has its own network (10.66.0.N, beyond 248 hosts 10.66.1.N, and fd66::N on `eth0`), UTS name, process table,
/etc/hosts (with `127.0.1.1 nodeN`, as Debian's installer writes it), home folder of the user, sshd with its own key
and, if this machine has cgroup v2, cgroup. The rest of the disk is this machine's and is the same on all hosts; a host
with its own root shares only /dev, /run, /sys and /tmp.

Standard library only; needs root, iproute2, nftables, util-linux, openssh-server and openssh-client.
"""

import argparse
import atexit
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

SUBNET6 = "fd66::"
FRONT_ADDRESS = 250
BASTION_ADDRESS = 249
MOST_NODES = 512
STATE = "/run/hosts"  # folder on a tmpfs that is mounted only in the switch and its hosts
USER_ID = 54321  # id of the ordinary user and of its group
CGROUP_PREFIX = "dslaunch-test-hosts-"  # followed by the pid of the process that made the cgroup
START_TIMEOUT_S = 30
LISTENS = "Server listening on"  # text in sshd's log, once per address
TOOLS = ["ip", "nft", "nsenter", "unshare", "setpriv", "mount", "ssh-keygen", "sshd"]
OWN_PROGRAM = [sys.executable, "-I", "-S", os.path.abspath(__file__)]  # -I -S halves Python's start time
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def address_of(number):
    return f"10.66.{number // 256}.{number % 256}"


def number_of_node(index):
    """Returns the last part of a node's address as a number. It never equals the number of the front or the bastion,
    and its low byte is never 0 or 255."""
    return 256 * (index // 248) + index % 248 + 1


def why_not():
    """Returns the reason why test hosts cannot run on this machine, with a hint; None if they can."""
    if sys.platform != "linux":
        return "test hosts are Linux namespaces; run this on Linux"
    if os.geteuid() != 0:
        return "test hosts need root, to make namespaces and run sshd; this runs them: sudo ./run-tests --only hosts"
    missing = [tool for tool in TOOLS if not shutil.which(tool, path=SYSTEM_PATH)]
    if missing:
        return (f"test hosts need {', '.join(missing)}; install them with "
                "`packaging/install-debian-packages --tests`")
    probe = subprocess.run(["unshare", "--net", "--mount", "--pid", "--uts", "--fork", "true"],
                           capture_output=True, text=True, timeout=10)
    if probe.returncode != 0:
        return ("this machine does not let root make namespaces "
                f"({probe.stderr.strip()}); in a container, start it with --privileged")
    return None


def find_sshd():
    return shutil.which("sshd", path=SYSTEM_PATH)


# --- processes, as this machine's /proc shows them ---------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Process:
    pid: int        # in this process's PID namespace, so it can be signalled
    ppid: int
    comm: str  # name of the process itself, at most 15 bytes
    state: str  # R, S, D, T or Z, as in /proc/PID/stat
    argv: tuple  # arguments as str; empty for a zombie
    environ: dict  # variables as str

    @property
    def name(self):
        return os.path.basename(self.argv[0]) if self.argv else ""

    def __str__(self):
        return f"{self.pid} (parent {self.ppid}, {self.state}) {' '.join(self.argv)}"


def _text(data):
    return data.decode(errors="surrogateescape")


def _read(pid, name):
    """Returns the content of /proc/PID/NAME. Does not use pathlib or buffers, because tests poll hundreds of these
    files."""
    with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:
        return file.read()


def read_process(pid):
    """Returns the Process with this pid, or None if it has ended."""
    try:
        head, _, tail = _text(_read(pid, "stat")).rpartition(")")
        argv = tuple(_text(_read(pid, "cmdline")).split("\0")[:-1])
        variables = _text(_read(pid, "environ")).split("\0")
    except OSError:
        return None
    state, ppid, _ = tail.split(maxsplit=2)
    environ = dict(variable.split("=", 1) for variable in variables if "=" in variable)
    return Process(int(pid), int(ppid), head.partition("(")[2], state, argv, environ)


def all_pids():
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def namespace_of(pid):
    """Returns the PID namespace of a process; None if the process has ended."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return None


def processes_of(pids):
    """Returns the processes of `pids` that are alive and not zombies."""
    found = (read_process(pid) for pid in pids)
    return [process for process in found if process and process.state != "Z"]


def processes_where(condition):
    """Returns the processes for which condition(Process) is true, except this process. Reads the whole environment
    of all processes; the functions below cost far less."""
    return [process for process in processes_of(pid for pid in all_pids() if pid != os.getpid()) if condition(process)]


def processes_in(namespace):
    return processes_of(pid for pid in all_pids() if namespace_of(pid) == namespace)


def processes_with(variable, value):
    """Returns the processes whose environment has VARIABLE=VALUE."""
    word = f"{variable}={value}".encode()
    def has_it(pid):
        try:
            return word in _read(pid, "environ").split(b"\0")
        except OSError:
            return False
    return processes_of(pid for pid in all_pids() if pid != os.getpid() and has_it(pid))


def children_of(pid):
    """Returns the pids of the children of `pid` that are alive."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
        pids = [int(child) for thread in threads for child in _read(pid, f"task/{thread}/children").split()]
    except OSError:
        return []
    return [process.pid for process in processes_of(pids)]


def sockets_of(pid):
    """Returns the inodes of a process's open sockets, in the form of /proc/net/tcp."""
    found = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except FileNotFoundError:  # closed since listdir()
            continue
        if target.startswith("socket:["):
            found.add(target[len("socket:["):-1])
    return found


def tcp_sockets(pid, state):
    """Returns {(local port, inode)} of the TCP sockets in a process's network namespace. `state` as in
    /proc/net/tcp: "01" connected, "0A" listening."""
    found = set()
    for name in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == state:
                found.add((int(fields[1].rsplit(":", 1)[1], 16), fields[9]))
    return found


def wait_until(condition, timeout_s, what="", poll_s=0.02):
    """Polls until condition() is truthy and returns its value; raises TimeoutError after timeout_s seconds."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout_s} s: {what}")
        time.sleep(poll_s)


# --- cgroups -----------------------------------------------------------------------------------------------------


def find_cgroup_root():
    """Returns the mount point of cgroup v2; None if it is not mounted or not writable."""
    for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
        _, folder, kind, *_ = line.split()
        if kind == "cgroup2" and os.access(folder, os.W_OK):
            return pathlib.Path(folder)
    return None


def remove_cgroup(folder):
    """Removes an empty cgroup and all cgroups below it."""
    for path, _, _ in os.walk(folder, topdown=False):
        try:
            os.rmdir(path)
        except FileNotFoundError:
            pass


def remove_stale_cgroups(root):
    """Removes the cgroups that killed processes left behind."""
    for folder in root.glob(CGROUP_PREFIX + "*"):
        if not os.path.exists(f"/proc/{folder.name.split('-')[-2]}"):
            try:
                remove_cgroup(folder)
            except OSError:
                pass  # the hosts of the cgroup are just ending


# --- what a test uses --------------------------------------------------------------------------------------------


class Host:
    """One test host. Its processes are addressed by this machine's pids."""

    def __init__(self, hosts, name, number, init_pid):
        self._hosts = hosts
        self.name = name
        self.address = address_of(number)
        self.address6 = f"{SUBNET6}{number}"
        self.init_pid = init_pid
        self.home = f"{STATE}/{'shared' if hosts.shared_home else name}/home"
        self.pid_namespace = os.readlink(f"/proc/{init_pid}/ns/pid")

    def command(self, argv, cwd="/"):
        """Returns the argv that runs `argv` in this host when it is started from outside."""
        identity = [f"--setuid={USER_ID}", f"--setgid={USER_ID}"] if self._hosts.user != "root" else []
        return ["nsenter", f"--target={self.init_pid}", "--net", "--uts", "--pid", "--mount", "--root", *identity,
                f"--wdns={cwd}", "--", *argv]

    def environment(self, extra=None):
        """Returns the environment of a login shell of the user, with `extra` added."""
        user = self._hosts.user
        return {"PATH": SYSTEM_PATH, "HOME": self.home, "USER": user, "LOGNAME": user, "SHELL": "/bin/bash",
                "LANG": "C.UTF-8", **(extra or {})}

    def popen(self, argv, env=None, cwd="/", **options):
        """Starts `argv` in this host. The `inner_pid` of the Popen is the pid of `argv` itself; signal that process,
        not nsenter."""
        child = subprocess.Popen(self.command(argv, cwd), env=self.environment(env), **options)
        child.inner_pid = None
        try:
            child.inner_pid = wait_until(lambda: children_of(child.pid) or child.poll() is not None, 10)[0]
        except (TimeoutError, TypeError):
            pass  # the process has already ended
        return child

    def run(self, argv, env=None, cwd="/", timeout_s=60, **options):
        """Runs `argv` in this host; returns a subprocess.CompletedProcess with text output."""
        options = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "errors": "replace", **options}
        return subprocess.run(self.command(argv, cwd), env=self.environment(env), timeout=timeout_s, **options)

    def sent_bytes(self):
        """Returns the number of bytes that this host's network interface has sent, from the kernel's counter."""
        line, = (line for line in self.run(["cat", "/proc/net/dev"]).stdout.splitlines() if "eth0:" in line)
        return int(line.split(":")[1].split()[8])

    def processes(self):
        """Returns all processes of this host except its first process and the listening sshd."""
        return [process for process in processes_in(self.pid_namespace)
                if process.pid != self.init_pid and not self._is_listening_sshd(process)]

    def _listening_sshds(self):
        return [process for process in processes_in(self.pid_namespace) if self._is_listening_sshd(process)]

    def _is_listening_sshd(self, process):
        return process.ppid == self.init_pid and process.argv and "[listener]" in process.argv[0]

    def named(self, name):
        return [process for process in self.processes() if process.name == name]

    def outside_path(self, path):
        """Converts `path` in this host to a path of this machine. Relative paths start at the home folder."""
        return pathlib.Path(f"/proc/{self.init_pid}/root{os.path.join(self.home, path)}")

    def read_file(self, path):
        return self.outside_path(path).read_text(errors="replace")

    def write_file(self, path, text, mode=0o644):
        """Writes a file and returns its absolute path inside the host. Relative paths start at the home folder."""
        outside = self.outside_path(path)
        outside.parent.mkdir(parents=True, exist_ok=True)
        outside.write_text(text)
        outside.chmod(mode)
        if self._hosts.user != "root":
            os.chown(outside, USER_ID, USER_ID)
        return os.path.join(self.home, path)

    def link_down(self):
        """Disconnects the host from the network: peers receive nothing, not even an end of file."""
        self._hosts.in_switch(["ip", "link", "set", self._port, "down"])

    def link_up(self):
        self._hosts.in_switch(["ip", "link", "set", self._port, "up"])

    def cut_one_way(self, direction, others=()):
        """Silently drops packets from ("in") or to ("out") the hosts `others`, or all hosts if empty. heal() reverts
        this."""
        hook, match, side = {"in": ("input", "iifname", "saddr"), "out": ("output", "oifname", "daddr")}[direction]
        rules = [f"{family} {side} {address}" for other in others
                 for family, address in (("ip", other.address), ("ip6", other.address6))] or [f"{match} eth0"]
        self._nft(f"add table inet cut; add chain inet cut {hook} {{ type filter hook {hook} priority 0; }}; "
                  + "; ".join(f"add rule inet cut {hook} {rule} drop" for rule in rules))

    def forbid_connecting(self):
        """Silently drops packets that would open a TCP connection from this host. heal() reverts this."""
        self._nft("add table inet cut; add chain inet cut output { type filter hook output priority 0; }; "
                  "add rule inet cut output oifname eth0 tcp flags & (syn | ack) == syn drop")

    def heal(self):
        """Reverts cut_one_way() or forbid_connecting()."""
        self._nft("delete table inet cut")

    def reset_connections(self, match):
        """Resets this host's TCP connections that match the `ss` filter, like a firewall that has lost their state."""
        subprocess.run(["nsenter", f"--target={self.init_pid}", "--net", "--", "ss", "--kill", "--no-header", "--tcp",
                        "state", "established", match], check=True, timeout=10, stdout=subprocess.DEVNULL)

    def refuse_ssh_from(self, host):
        """Silently drops packets from `host` to this host's sshd. forget_refusals() reverts this."""
        self._nft("add table inet refuse; "
                  "add chain inet refuse input { type filter hook input priority 0; }; "
                  f"add rule inet refuse input ip saddr {host.address} tcp dport 22 drop; "
                  f"add rule inet refuse input ip6 saddr {host.address6} tcp dport 22 drop")

    def forget_refusals(self):
        """Reverts refuse_ssh_from()."""
        self._nft("delete table inet refuse")

    def _nft(self, rules):
        subprocess.run(["nsenter", f"--target={self.init_pid}", "--net", "--", "nft", rules], check=True, timeout=10)

    @property
    def _port(self):
        return f"p-{self.name}"

    def power_cut(self):
        """Simulates a power cut. Disconnects the network first, because otherwise the sockets of killed processes
        would be closed towards their peers."""
        self.link_down()
        os.kill(self.init_pid, signal.SIGKILL)

    def stop_sshd(self):
        """Kills the listening sshd, which prevents new logins. Running sessions continue."""
        for process in self._listening_sshds():
            os.kill(process.pid, signal.SIGKILL)

    def hold_sshd(self):
        """Suspends the listening sshd, so that new logins get a connection without any answer."""
        for process in self._listening_sshds():
            os.kill(process.pid, signal.SIGSTOP)

    def release_sshd(self):
        for process in self._listening_sshds():
            os.kill(process.pid, signal.SIGCONT)

    def reload_sshd(self):
        """Makes sshd read its changed sshd_config, and waits until it listens again."""
        before = self.sshd_log()
        addresses = before.count(LISTENS) // (before.count("Received SIGHUP") + 1)
        listening, = self._listening_sshds()
        os.kill(listening.pid, signal.SIGHUP)
        wait_until(lambda: self.sshd_log()[len(before):].count(LISTENS) == addresses, 10, f"sshd of {self.name}")

    def sshd_log(self):
        return self.read_file(f"{STATE}/{self.name}/sshd.log")


class TestHosts:
    """`count` hosts node1..nodeN and a `front` without sshd, whose key logs in to the others.

    Start it from a thread that lives as long as the hosts are needed: they end with it.
      shared_home   one home folder for all hosts (as over NFS) instead of one each
      sshd_options  {"RekeyLimit": "16M"}: overrides for sshd_config
      bashrc        text of .bashrc on the nodes
      user          account that logs in and runs programs; a name other than root becomes an ordinary account
      bastion       overrides for sshd_config of an additional host `bastion`, which is not part of jobs; None: no bastion
      password      of the user's account, on every host
      nodes_log_in  the nodes can log in to each other, like the front
      binds         {path below /run/hosts: folder of this machine}: visible there too, for a user who may not enter
                    the folder's parents
      roots         {"node1": folder}: an installed system (debootstrap) with sshd that is this host's disk
      agent         a dslaunch-agent that the nodes have already; copying it takes most of the time of a first job
    """
    __test__ = False  # not a test case, for tools that collect by name

    def __init__(self, count=2, shared_home=False, sshd_options=None, bashrc="", user="root", binds=None,
                 bastion=None, password="", nodes_log_in=False, roots=None, agent=None):
        self.shared_home = shared_home
        self.user = user
        self._spec = {"nodes": [f"node{i + 1}" for i in range(count)], "shared_home": shared_home,
                      "sshd_options": sshd_options or {}, "bashrc": bashrc, "user": user, "bastion": bastion,
                      "password": password, "nodes_log_in": nodes_log_in, "agent": str(agent or ""),
                      "roots": {host: str(root) for host, root in (roots or {}).items()},
                      "binds": {str(inside): str(outside) for inside, outside in (binds or {}).items()}}
        self._switch = None
        self._cgroup = None

    def __enter__(self):
        reason = why_not()
        if reason:
            raise RuntimeError(reason)
        # The switch ends by the parent-death signal, or by end of file on its stdin.
        self._switch = subprocess.Popen(
            ["setpriv", "--pdeathsig=KILL", "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child",
             "--mount-proc", *OWN_PROGRAM, "_switch", json.dumps(self._spec)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={"PATH": SYSTEM_PATH, "LANG": "C.UTF-8"})
        atexit.register(self.close)
        try:
            started = json.loads(self._read_line())
        except BaseException:
            self.close()
            raise
        self.known_hosts = started["known_hosts"]  # {name: line of known_hosts}
        switch_pid, = children_of(self._switch.pid)
        self.switch_pid = switch_pid
        inits = self._find_inits()
        everyone = [Host(self, name, number, inits[name]) for name, number in started["numbers"].items()]
        self.nodes = [host for host in everyone if host.name not in ("front", "bastion")]
        self.bastion = next((host for host in everyone if host.name == "bastion"), None)
        self.front, = [host for host in everyone if host.name == "front"]
        self._make_cgroups(everyone)
        return self

    def _make_cgroups(self, everyone):
        """Makes a cgroup for each host, so that no host can find or end the processes of another host."""
        root = find_cgroup_root()
        if not root:
            return
        remove_stale_cgroups(root)
        self._cgroup = root / f"{CGROUP_PREFIX}{os.getpid()}-{self.switch_pid}"
        for host in everyone:
            folder = self._cgroup / host.name
            folder.mkdir(parents=True)
            for pid in [host.init_pid, *children_of(host.init_pid)]:  # the first process and its only child, sshd
                (folder / "cgroup.procs").write_text(str(pid))

    def _read_line(self):
        import selectors
        selector = selectors.DefaultSelector()
        selector.register(self._switch.stdout, selectors.EVENT_READ)
        limit_s = START_TIMEOUT_S + 2 * len(self._spec["nodes"])
        line = self._switch.stdout.readline() if selector.select(limit_s) else ""
        if not line:
            raise RuntimeError("the test hosts did not start; their own message is above")
        return line

    def _find_inits(self):
        """Returns {host name: pid of the host's first process}, which is a grandchild of the switch, below an `unshare`."""
        inits = {}
        for unshare in children_of(self.switch_pid):
            for process in processes_of(children_of(unshare)):
                if "_host" in process.argv:
                    inits[process.argv[-1]] = process.pid
        return inits

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Ends all hosts and all processes in them. May be called twice."""
        atexit.unregister(self.close)
        if not self._switch:
            return
        switch, self._switch = self._switch, None
        switch.kill()  # kills unshare; its child, the switch's first process, then dies, and with it all hosts
        switch.wait(timeout=10)
        switch.stdin.close()
        switch.stdout.close()
        if self._cgroup:
            cgroup, self._cgroup = self._cgroup, None
            wait_until(lambda: "populated 0" in (cgroup / "cgroup.events").read_text(), 10, f"{cgroup} is empty")
            remove_cgroup(cgroup)

    def in_switch(self, argv):
        subprocess.run(["nsenter", f"--target={self.switch_pid}", "--net", "--", *argv], check=True, timeout=10)

    def hostfile(self, slots=2, text=None):
        """Writes a hostfile on the front host; returns its path there."""
        if text is None:
            text = "".join(f"{node.name} slots={slots}\n" for node in self.nodes)
        return self.front.write_file("hostfile", text)

    def set_known_hosts(self, lines):
        """Replaces the front's known_hosts."""
        self.front.write_file(".ssh/known_hosts", "".join(line + "\n" for line in lines))

    def trust_all(self):
        self.set_known_hosts(self.known_hosts.values())

    def other_key_line(self, name):
        """Returns a known_hosts line for host `name` with a key that is not the host's."""
        key = self.front.outside_path(f"{STATE}/other_key")
        if not key.exists():
            _keygen(key, "other")
        return f"{name} {key.with_suffix('.pub').read_text().strip()}"


# --- inside: the switch, which is process 1 of the outer namespaces ----------------------------------------------


def _call(*argv):
    subprocess.run(argv, check=True, timeout=START_TIMEOUT_S, stdin=subprocess.DEVNULL)


def _keygen(path, comment):
    _call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path))


def _write(path, text, mode=0o644):
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def _reap_forever():
    """Reaps orphans, as the first process of a namespace must. Returns at end of file on stdin."""
    import select
    signal.signal(signal.SIGCHLD, lambda *_: None)
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end)
    while True:
        ready, _, _ = select.select([0, read_end], [], [])
        if 0 in ready and not os.read(0, 1):
            return
        if read_end in ready:
            os.read(read_end, 4096)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass


def _etc_hosts(name, numbers):
    # Matches a Debian host in a network with DNS: a host's own name is 127.0.1.1, and all other names have real
    # addresses.
    lines = ["127.0.0.1 localhost", f"127.0.1.1 {name}", "::1 localhost ip6-localhost ip6-loopback"]
    for other, number in numbers.items():
        if other != name:
            lines += [f"{address_of(number)} {other}", f"{SUBNET6}{number} {other}"]
    return "\n".join(lines) + "\n"


def _sshd_config(name, options):
    # All clients use libssh's key exchange, because OpenSSH's own first choice, sntrup761, costs a client up to 0.2 s
    # of a core.
    settings = {
        "KexAlgorithms": "curve25519-sha256,curve25519-sha256@libssh.org",
        "Port": "22", "HostKey": f"{STATE}/{name}/host_key", "PidFile": "none", "UsePAM": "no",
        "PermitRootLogin": "prohibit-password", "PasswordAuthentication": "no",
        "KbdInteractiveAuthentication": "no", "PrintMotd": "no", "PrintLastLog": "no",
        "AcceptEnv": "LANG LC_*", "Subsystem": "sftp internal-sftp", "LogLevel": "VERBOSE",
        "MaxStartups": "10:30:100", **options}
    return "".join(f"{key} {value}\n" for key, value in settings.items())


def _write_home(home, logs_in, bashrc, authorized_keys, known_hosts):
    for folder in (home, f"{home}/.ssh"):
        os.makedirs(folder, exist_ok=True)
        os.chmod(folder, 0o700)
    _write(f"{home}/.ssh/authorized_keys", authorized_keys, 0o600)
    _write(f"{home}/.bashrc", bashrc)
    if logs_in:
        shutil.copyfile(f"{STATE}/user_key", f"{home}/.ssh/id_ed25519")
        os.chmod(f"{home}/.ssh/id_ed25519", 0o600)
        _write(f"{home}/.ssh/known_hosts", known_hosts)


def _give_agent(home, agent):
    cache = pathlib.Path(home, ".cache", "dslaunch")
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    content = pathlib.Path(agent).read_bytes()
    note = bytes([4, 0, 0, 0, 20, 0, 0, 0, 3, 0, 0, 0]) + b"GNU\0"
    build_id = content[content.index(note) + len(note):][:20].hex()
    (cache / f"agent-{build_id}").write_bytes(content)
    (cache / f"agent-{build_id}").chmod(0o700)


def _account_files(folder, home, user, password):
    """Writes passwd and shadow for the user. `home`: the user's home folder. sshd does not treat the account as locked."""
    number = 0 if user == "root" else USER_ID
    secret = "*"
    if password:
        secret = subprocess.run(["openssl", "passwd", "-6", "-stdin"], input=password, check=True, capture_output=True,
                                text=True, timeout=10).stdout.strip()
    for name, line, mode in (("passwd", f"{user}:x:{number}:{number}:{user}:{home}:/bin/bash\n", 0o644),
                             ("shadow", f"{user}:{secret}:19000:0:99999:7:::\n", 0o600)):
        others = pathlib.Path(f"/etc/{name}").read_text().splitlines(True)
        _write(f"{folder}/{name}", line + "".join(other for other in others if not other.startswith(f"{user}:")), mode)


def run_switch(spec):
    _call("mount", "--make-rprivate", "/")
    _call("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    os.mkdir(STATE)
    for inside, outside in spec["binds"].items():
        os.mkdir(inside)
        _call("mount", "--bind", outside, inside)
    _call("ip", "link", "add", "br0", "type", "bridge")
    _call("ip", "link", "set", "br0", "up")
    _keygen(f"{STATE}/user_key", "user")
    public_key = pathlib.Path(f"{STATE}/user_key.pub").read_text()

    numbers = {name: number_of_node(i) for i, name in enumerate(spec["nodes"])}
    numbers["front"] = FRONT_ADDRESS
    with_sshd = list(spec["nodes"])
    if spec["bastion"] is not None:
        numbers["bastion"] = BASTION_ADDRESS
        with_sshd.append("bastion")
    known_hosts = {}
    for name in numbers:
        os.mkdir(f"{STATE}/{name}")
    for name in with_sshd:
        _keygen(f"{STATE}/{name}/host_key", name)
        key = " ".join(pathlib.Path(f"{STATE}/{name}/host_key.pub").read_text().split()[:2])
        known_hosts[name] = f"{name},{address_of(numbers[name])} {key}"

    for name in numbers:
        is_front = name == "front"
        home = f"{STATE}/{'shared' if spec['shared_home'] else name}/home"
        _write_home(home, is_front or spec["nodes_log_in"], "" if is_front and not spec["shared_home"] else spec["bashrc"], public_key,
                    "".join(line + "\n" for line in known_hosts.values()))
        if spec["agent"] and not is_front:
            _give_agent(home, spec["agent"])
        _account_files(f"{STATE}/{name}", home, spec["user"], spec["password"])
        if spec["user"] != "root":
            _call("chown", "-R", f"{USER_ID}:{USER_ID}", home)
        _write(f"{STATE}/{name}/hosts", _etc_hosts(name, numbers))
        options = spec["bastion"] if name == "bastion" else spec["sshd_options"]
        _write(f"{STATE}/{name}/sshd_config", _sshd_config(name, options))

    guests = {name: _start_host(name, number, spec["roots"].get(name, "/")) for name, number in numbers.items()}
    for name, guest in guests.items():
        if guest.stdout.readline() != "ready\n":
            said = pathlib.Path(f"{STATE}/{name}/start.log").read_text()
            sys.exit(f"test host {name} did not start; it says:\n{said}")
    print(json.dumps({"numbers": numbers, "known_hosts": known_hosts}), flush=True)
    _reap_forever()


def _start_host(name, number, root):
    with open(f"{STATE}/{name}/start.log", "w") as log:  # receives unshare's messages, for example after a power cut
        guest = subprocess.Popen(
            ["setpriv", "--pdeathsig=KILL", "unshare", "--net", "--uts", "--pid", "--mount", "--fork", "--kill-child",
             "--mount-proc", *OWN_PROGRAM, "_host", root, name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
    init_pid = wait_until(lambda: children_of(guest.pid), 10, f"first process of {name}")[0]
    _call("ip", "link", "add", f"p-{name}", "type", "veth", "peer", "name", "eth0", "netns", str(init_pid))
    _call("ip", "link", "set", f"p-{name}", "master", "br0", "up")
    guest.stdin.write(f"{number}\n")
    guest.stdin.flush()
    return guest


# --- inside: a host's first process ------------------------------------------------------------------------------


def run_host(root, name):
    own = f"{STATE}/{name}"
    number = sys.stdin.readline().strip()
    _call("hostname", name)
    if root != "/":
        for folder in ("dev", "proc", "run", "sys", "tmp"):
            _call("mount", "--rbind", f"/{folder}", f"{root}/{folder}")
    for file in ("hosts", "passwd", "shadow"):
        place = pathlib.Path(f"{root}/etc/{file}")
        place.touch()  # not every root has /etc/hosts
        _call("mount", "--bind", f"{own}/{file}", str(place))
    os.makedirs("/run/sshd", exist_ok=True)
    _call("ip", "link", "set", "lo", "up")
    _call("ip", "address", "add", f"{address_of(int(number))}/16", "dev", "eth0")
    _call("ip", "address", "add", f"{SUBNET6}{number}/64", "dev", "eth0", "nodad")
    _call("ip", "link", "set", "eth0", "up")
    os.chroot(root)
    os.chdir("/")
    if name != "front":
        with open(f"{own}/sshd.log", "w") as log:
            # sshd gets its own session, so that it receives no signals from this process's terminal.
            subprocess.Popen([find_sshd(), "-D", "-e", "-f", f"{own}/sshd_config"], stdin=subprocess.DEVNULL,
                             stdout=log, stderr=log, start_new_session=True)
        wait_until(lambda: _listens(22), 10, f"sshd of {name}; see {own}/sshd.log")
    # The switch closes stdout after this line, so nothing else may be written to it.
    print("ready", flush=True)
    _reap_forever()


def _listens(port):
    needle = f":{port:04X} 00000000:0000 0A"
    return needle in pathlib.Path("/proc/net/tcp").read_text()


# --- by hand -----------------------------------------------------------------------------------------------------


def up(count, shared_home):
    import shlex
    reason = why_not()
    if reason:
        sys.exit(f"test_hosts: {reason}")
    with TestHosts(count, shared_home=shared_home) as hosts:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
        variables = [f"{name}={value}" for name, value in hosts.front.environment({"TERM": "xterm"}).items()]
        shell = shlex.join(hosts.front.command(["env", "-i", *variables, "bash", "-i"], cwd=os.getcwd()))
        print(f"Up: {', '.join(f'{node.name} ({node.address})' for node in hosts.nodes)}.\n"
              f"A shell on the front host, from another terminal:\n  {shell}\n"
              f"There:\n"
              f"  ssh node1 hostname\n"
              f"  build/bin/dslaunch --hostfile {hosts.hostfile()} --num_nodes {count} --num_gpus 2 hostname\n"
              f"Its home is {hosts.front.home}: .ssh/known_hosts, .ssh/id_ed25519, hostfile. Ctrl-C ends all hosts.",
              flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
        print("\nDown.")


def main():
    if sys.argv[1:2] == ["_switch"]:
        return run_switch(json.loads(sys.argv[2]))
    if sys.argv[1:2] == ["_host"]:
        return run_host(*sys.argv[2:])
    parser = argparse.ArgumentParser(description="Test hosts to try dslaunch on by hand; ends at Ctrl-C.")
    parser.add_argument("action", choices=["up", "check"], help="check: says why they cannot be had, and ends with 1")
    parser.add_argument("count", type=int, nargs="?", default=2, help="how many nodes (default 2)")
    parser.add_argument("--shared-home", action="store_true", help="one home folder for all hosts")
    arguments = parser.parse_args()
    if not 1 <= arguments.count <= MOST_NODES:
        parser.error(f"count must be between 1 and {MOST_NODES}")
    if arguments.action == "check":
        reason = why_not()
        print(reason or "test hosts can be had here")
        sys.exit(1 if reason else 0)
    return up(arguments.count, arguments.shared_home)


if __name__ == "__main__":
    main()
