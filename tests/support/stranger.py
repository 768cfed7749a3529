#!/usr/bin/env python3
"""Probes a job's listening sockets from a process that is not part of the job, until its stdin ends.

Reads lines of JSON: {"host": "10.66.0.1", "port": 4711, "recorded": ["hex of data that a client sent there", ...]},
and keeps probing each port. Without a host, the port is the path of a Unix socket, with "@" first if it is abstract.
At the end it prints a line for each port: {"host", "port", "connected": N, "received": N bytes}.
"""

import json
import os
import select
import socket
import ssl
import struct
import sys

PATIENCE_S = 0.1
HELD = 40  # idle connections that are held open per port


def rank_link(kind, to, attempt=1):
    """Returns a message of the protocol that connects ranks (proto/contract/rank_link.h)."""
    label = b"job.0"
    return (struct.pack("<8IQ", 0x314C5244, kind, 0, to, 0, len(label), 0, 0, attempt) + label).ljust(1024, b"\0")


def store_set(key, value):
    """Returns a request to PyTorch's TCPStore to set a key: magic, then SET."""
    def text(data):
        return struct.pack("<Q", len(data)) + data
    return struct.pack("<BI", 0, 0x3C85F7CE) + struct.pack("<B", 1) + text(key) + text(value)


def own_store_set(key, value):
    """Returns a request to the ranks' own store (trainer/comm/links/store_core.h) to set a key."""
    body = struct.pack("<BQq", 1, 1, 0)
    for text in (key, value):
        body += struct.pack("<II", 1, len(text)) + text
    return struct.pack("<I", len(body)) + body


GREETINGS = [
    b"",  # only reads
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    os.urandom(4096),
    rank_link(1, 0), *(rank_link(3, to) for to in range(4)),
    *(struct.pack("<Q", number) for number in range(8)),  # Gloo's connection numbers
    *(struct.pack("<Q", number) + bytes(4096) for number in range(4)),
    store_set(b"/shm/segment", b"1 1"),
    store_set(b"stop", b"1"),
    own_store_set(b"place/1", b"0 127.0.0.1:1"),
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(600),  # the beginning of a TLS handshake
]


class Port:
    def __init__(self, order):
        self.host, self.port = order["host"], order["port"]
        self.recorded = [bytes.fromhex(text) for text in order["recorded"]]
        self.connected = self.received = 0
        self.held = []

    def connect(self):
        if self.host is None:
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(PATIENCE_S)
            connection.connect("\0" + self.port[1:] if self.port.startswith("@") else self.port)
        else:
            connection = socket.create_connection((self.host, self.port), PATIENCE_S)
        self.connected += 1
        connection.settimeout(PATIENCE_S)
        return connection

    def read(self, connection):
        try:
            self.received += len(connection.recv(65536))
        except OSError:
            pass

    def send(self, data):
        try:
            with self.connect() as connection:
                connection.sendall(data)
                self.read(connection)
        except OSError:
            pass

    def send_in_tls(self, data):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        try:
            with context.wrap_socket(self.connect()) as connection:
                connection.sendall(data)
                self.read(connection)
        except OSError:
            pass

    def hold(self):
        if len(self.held) >= HELD:
            self.held.pop(0).close()
        try:
            self.held.append(self.connect())
        except OSError:
            pass

    def report(self):
        return {"host": self.host, "port": self.port, "connected": self.connected, "received": self.received}


def main():
    ports = []
    number = 0
    pending = b""
    while True:
        ready, _, _ = select.select([0], [], [], 0 if ports else 1)
        if ready:
            data = os.read(0, 1 << 20)
            if not data:
                break
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                order = json.loads(line)
                known = [port for port in ports if (port.host, port.port) == (order["host"], order["port"])]
                if known:
                    known[0].recorded = [bytes.fromhex(text) for text in order["recorded"]]
                else:
                    ports.append(Port(order))
        for port in ports:
            messages = GREETINGS + port.recorded
            port.send(messages[number % len(messages)])
            port.send_in_tls(GREETINGS[number % len(GREETINGS)])
            port.hold()
        number += 1
    for port in ports:
        print(json.dumps(port.report()), flush=True)


if __name__ == "__main__":
    main()
