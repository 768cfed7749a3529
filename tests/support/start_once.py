"""Starts processes of a program that is loaded once and forked for each process (start_once.cc)."""

import atexit
import ctypes
import os
import select
import signal
import socket
import struct
import subprocess
import tempfile
import threading

LIBRARY = os.environ.get("DSLAUNCH_START_ONCE", "")  # path of the preloaded library; if empty, each process loads the program
PR_SET_CHILD_SUBREAPER = 36
# Variables that a program reads before main. A process with other values of them is forked from another loaded program.
READ_AT_START = ("LD_", "OMP_", "GOMP_", "KMP_", "MKL_")


def read_at_start(env):
    return sorted(pair for pair in env.items() if pair[0].startswith(READ_AT_START))


class Process:
    """Implements the part of subprocess.Popen that tests use."""

    def __init__(self, pid):
        self.pid, self.returncode = pid, None

    def poll(self):
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid != 0:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout=60):
        if self.poll() is None:
            with open(os.pidfd_open(self.pid), "rb") as ended:
                if not select.select([ended], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return self.poll()

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


class Forked:
    """A program that has been loaded and waits before its main for requests to fork."""

    def __init__(self, program, env):
        own, others = socket.socketpair()
        preload = ":".join(filter(None, (LIBRARY, env.get("LD_PRELOAD"))))
        self.process = subprocess.Popen(
            [program], env={**os.environ, **dict(read_at_start(env)), "LD_PRELOAD": preload, "START_ONCE_FD": str(others.fileno())},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[others.fileno()])
        others.close()
        self.socket = own
        atexit.register(self.end)

    def start(self, arguments, env, fds):
        strings = [os.getcwd(), " ".join(map(str, fds)), str(len(arguments)), *arguments, *("%s=%s" % pair for pair in env.items())]
        body = b"".join(os.fsencode(each) + b"\0" for each in strings)
        socket.send_fds(self.socket, [struct.pack("=q", len(body))], list(fds.values()))
        self.socket.sendall(body)
        answer = self.socket.recv(8, socket.MSG_WAITALL)
        if len(answer) != 8:
            raise OSError("start_once.cc has ended; its message is above")
        return Process(*struct.unpack("=q", answer))

    def end(self):
        self.socket.close()
        self.process.wait(60)


_lock = threading.Lock()
_forked = {}


def start(arguments, env, stdout, stderr, stdin=subprocess.DEVNULL, pass_fds=()):
    """Starts a process like subprocess.Popen. `stdout`, `stderr` and `stdin` must be files; stdin may be DEVNULL."""
    if not LIBRARY:
        return subprocess.Popen(arguments, env=env, stdin=stdin, stdout=stdout, stderr=stderr, pass_fds=pass_fds)
    key = (arguments[0], *read_at_start(env))
    with _lock, open(os.devnull) as empty:
        if not _forked:
            ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        if key not in _forked:
            _forked[key] = Forked(arguments[0], env)
        given = empty if stdin == subprocess.DEVNULL else stdin
        fds = {0: given.fileno(), 1: stdout.fileno(), 2: stderr.fileno(), **{fd: fd for fd in pass_fds}}
        return _forked[key].start(arguments, env, fds)


def run(arguments, env=None, input="", timeout=60):
    """Runs a process like subprocess.run, with text input and output."""
    files = [tempfile.TemporaryFile("w+") for _ in range(3)]
    with files[0] as stdin, files[1] as stdout, files[2] as stderr:
        stdin.write(input)
        stdin.seek(0)
        process = start(arguments, dict(os.environ if env is None else env), stdout, stderr, stdin)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        stdout.seek(0)
        stderr.seek(0)
        return subprocess.CompletedProcess(arguments, code, stdout.read(), stderr.read())
