"""Exchanges small messages between the ranks of a job, over connections that the agents of the nodes provide.

proto/contract/rank_link.h defines the agent's protocol. Every rank connects to rank 0, which answers all of them.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from typing import Any, Callable

# Sends this rank's message to rank 0, calls `decide` there with the messages of all ranks, and returns the result of
# `decide` on every rank.
Exchange = Callable[[Any, Callable[[list[Any]], Any]], Any]

_HEAD = struct.Struct("<8IQ")  # magic, kind, from, to, node, sizes of label and text, unused, attempt
_MAGIC = 0x314C5244
_MESSAGE_BYTES = 1024
_LABEL = b"memory"  # the value of kMemoryLinkLabel
_HELLO, _WELCOME, _DIAL, _LINK, _FAILED = 1, 2, 3, 4, 5
_LENGTH = struct.Struct("<I")
_MAX_BYTES = 1 << 20


class LinkError(RuntimeError):
    """A rank was lost, or did not take part before the deadline."""


def _message(kind: int, rank: int, to: int = 0, attempt: int = 0) -> bytes:
    return (_HEAD.pack(_MAGIC, kind, rank, to, 0, len(_LABEL), 0, 0, attempt) + _LABEL).ljust(_MESSAGE_BYTES, b"\0")


class _Star:
    """The connections between rank 0 and every other rank."""

    def __init__(self, path: str, rank: int, world_size: int, attempt: int, deadline: float) -> None:
        self._rank, self._deadline = rank, deadline
        self._peers: dict[int, socket.socket] = {}
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as agent:
            self._limit(agent)
            agent.connect(path)
            agent.sendall(_message(_HELLO, rank, attempt=attempt))
            self._receive_link(agent)
            if rank != 0:
                agent.sendall(_message(_DIAL, rank, to=0))
            while len(self._peers) < (world_size - 1 if rank == 0 else 1):
                self._limit(agent)
                self._receive_link(agent)

    def _limit(self, connection: socket.socket) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        connection.settimeout(left)

    def _receive_link(self, agent: socket.socket) -> None:
        data, given = b"", []
        while len(data) < _MESSAGE_BYTES:
            some, fds, _, _ = socket.recv_fds(agent, _MESSAGE_BYTES - len(data), 1)
            given += fds
            if not some:
                raise ConnectionError("the node's agent has closed the connection; see its agent.log")
            data += some
        magic, kind, sender, to, _, label, text, _, _ = _HEAD.unpack_from(data)
        if magic == _MAGIC and kind == _FAILED:
            raise ConnectionError(data[_HEAD.size + label:_HEAD.size + label + text].decode(errors="replace"))
        if magic == _MAGIC and kind == _LINK and given:
            os.set_inheritable(given[0], False)
            self._peers[sender if self._rank == 0 else to] = socket.socket(fileno=given[0])

    def _send(self, peer: socket.socket, value: Any) -> None:
        data = json.dumps(value).encode()
        self._limit(peer)
        peer.sendall(_LENGTH.pack(len(data)) + data)

    def _receive(self, peer: socket.socket) -> Any:
        def exactly(size: int) -> bytes:
            data = b""
            while len(data) < size:
                self._limit(peer)
                some = peer.recv(size - len(data))
                if not some:
                    raise ConnectionError("a rank has ended")
                data += some
            return data

        size, = _LENGTH.unpack(exactly(_LENGTH.size))
        if size > _MAX_BYTES:
            raise ConnectionError("a rank sent an invalid message")
        return json.loads(exactly(size))

    def exchange(self, own: Any, decide: Callable[[list[Any]], Any]) -> Any:
        if self._rank != 0:
            self._send(self._peers[0], own)
            return self._receive(self._peers[0])
        others = {rank: self._receive(peer) for rank, peer in sorted(self._peers.items())}
        # Own values are converted to JSON and back, so that they have the same types as the values of other ranks.
        result = json.loads(json.dumps(decide([json.loads(json.dumps(own)), *others.values()])))
        for peer in self._peers.values():
            self._send(peer, result)
        return result

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()


class RankExchange:
    """Opens the connections for an exchange: `with RankExchange(...) as exchange: exchange(own, decide)`.

    Collective: all ranks of the job must enter and leave the block.
    """

    def __init__(self, rank: int, world_size: int, attempt: int, timeout_s: float) -> None:
        self._path = os.environ.get("DSLAUNCH_RANK_SOCKET", "")
        self._place = rank, world_size, attempt
        self._timeout_s = timeout_s
        self._star: _Star | None = None

    def __enter__(self) -> Exchange:
        rank, world_size, attempt = self._place
        if world_size == 1:
            return lambda own, decide: json.loads(json.dumps(decide([json.loads(json.dumps(own))])))
        if not self._path:
            raise LinkError("the nodes' agents provide no connections between ranks here (DSLAUNCH_RANK_SOCKET is empty)")
        try:
            self._star = _Star(self._path, rank, world_size, attempt, time.monotonic() + self._timeout_s)
        except (OSError, ValueError) as error:
            raise LinkError(f"no connection to the other ranks: {error}") from error
        return self._exchange

    def _exchange(self, own: Any, decide: Callable[[list[Any]], Any]) -> Any:
        assert self._star is not None
        try:
            return self._star.exchange(own, decide)
        except (OSError, ValueError) as error:
            raise LinkError(f"the exchange with the other ranks failed: {error}") from error

    def __exit__(self, *_: object) -> None:
        if self._star is not None:
            self._star.close()
