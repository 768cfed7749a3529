"""Tests the open ports of a running job against processes that do not belong to the job."""

import os
import pathlib
import re
import socket
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from launcher_case import TWO_BY_TWO, LauncherCase, bash, supervisors_and_agents, main  # noqa: E402
from test_hosts import sockets_of, tcp_sockets  # noqa: E402

WAITS = 'touch "$FOLDER/up.$RANK"; while [ ! -e "$FOLDER/go" ]; do sleep 0.05; done'
PRIVATE_KEYS = (b"PRIVATE KEY", b"MIGHAgEAMBMGByqGSM49")  # marks of a private key in PEM and in base64


def listening_ports(pid):
    """Returns the TCP ports on which a process listens."""
    own = sockets_of(pid)
    return {port for port, inode in tcp_sockets(pid, "0A") if inode in own}


class OpenPorts(LauncherCase):
    def setUp(self):
        super().setUp()
        self.job = self.start(TWO_BY_TWO, bash(WAITS), env={"FOLDER": str(self.folder)})
        self.wait_for_files(self.job, "up.*", 4)
        _, agents = supervisors_and_agents(self.leftovers())
        # These are one agent's port of the rendezvous, and each agent's port for connections between ranks. A socket
        # that only reserves a MASTER_PORT accepts no connections, and the agents' MPI servers start only when a program
        # connects.
        mpi_ports = {int(port) for process in self.leftovers() for port in
                     re.findall(r"PMIX_SERVER_URI4=[^;]*;tcp4://127\.0\.0\.1:(\d+)",
                                pathlib.Path(f"/proc/{process.pid}/environ").read_text())}
        self.assertEqual(2, len(mpi_ports))
        self.ports = [(agent.pid, port) for agent in agents for port in sorted(listening_ports(agent.pid))
                      if port not in mpi_ports and self.answers(port)]
        self.assertEqual(3, len(self.ports))

    @staticmethod
    def answers(port):
        """Returns whether the other side closes the connection after garbage."""
        with socket.create_connection(("127.0.0.1", port), timeout=2) as stranger:
            stranger.sendall(b"x" * 100)
            try:
                return not stranger.recv(1)
            except TimeoutError:
                return False

    def end(self):
        (self.folder / "go").touch()
        self.assert_code(0, self.wait(self.job), self.job)
        self.assert_nothing_left()

    def agent_log(self):
        return "".join(path.read_text() for path in self.folder.rglob("agent.log"))

    def test_garbage_does_no_harm_and_is_logged_once(self):
        for pid, port in self.ports:
            with self.subTest(port=port):
                self.besiege(pid, port)
        self.end()
        log = self.agent_log()
        self.assertEqual(len(self.ports), log.count("refused a connection from 127.0.0.1: it does not speak TLS"), log)
        self.assertEqual(len(self.ports), log.count("too many unauthenticated connections are pending"), log)

    def besiege(self, pid, port):
        """Sends garbage, and opens more silent connections than an agent accepts."""
        before = len(os.listdir(f"/proc/{pid}/fd"))
        for _ in range(10):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as stranger:
                stranger.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                while stranger.recv(4096):
                    pass
        idle = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(900)]
        # Once a later connection has been answered, the last silent connection has been accepted.
        with socket.create_connection(("127.0.0.1", port), timeout=10) as stranger:
            stranger.sendall(b"x" * 100)
            while stranger.recv(4096):
                pass
        self.assertLess(len(os.listdir(f"/proc/{pid}/fd")), before + 550)
        for connection in idle:
            connection.close()

    def test_private_keys_are_not_readable(self):
        self.assert_secret_nowhere(*PRIVATE_KEYS)
        self.end()
        self.assert_secret_nowhere(*PRIVATE_KEYS)


if __name__ == "__main__":
    main()
