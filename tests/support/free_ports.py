"""Reserves ports for the servers of tests. The ports are below the range that the kernel uses for connections, so
that a port is still free when its server begins to listen."""

import random
import socket


def held_port():
    """Returns a socket that reserves a port for a test, and the port. A server can still bind the port."""
    for port in random.sample(range(12000, 30000), 100):
        holder = socket.socket()
        try:
            holder.bind(("127.0.0.1", port))  # without SO_REUSEADDR, so that bind() fails if another test reserves the port
        except OSError:
            holder.close()
            continue
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return holder, port
    raise RuntimeError("no free port")


def free_ports(count):
    held = [held_port() for _ in range(count)]
    for holder, _ in held:
        holder.close()
    return [port for _, port in held]


def free_port():
    return free_ports(1)[0]
