#!/usr/bin/env python3
"""Records the data that clients send over TCP on this network's interfaces. Needs root.

Writes {"port": [hex, ...]} to the file that is its argument, about once a second: for each port the first bytes of
connections to it. Exits when its stdin ends.
"""

import json
import os
import select
import socket
import struct
import sys
import time

MAX_BYTES = 32768  # per connection
MAX_CONNECTIONS = 20  # per port


def payload(frame):
    """Returns ((source, source port, port), sequence, data, is_first) of a TCP segment; None for other frames."""
    kind, = struct.unpack_from("!H", frame, 12)
    if kind == 0x0800 and frame[23] == 6:
        source, tcp = frame[26:30], 14 + 4 * (frame[14] & 15)
        end = 14 + struct.unpack_from("!H", frame, 16)[0]
    elif kind == 0x86DD and frame[20] == 6:
        source, tcp = frame[22:38], 54
        end = 54 + struct.unpack_from("!H", frame, 18)[0]
    else:
        return None
    source_port, port, sequence = struct.unpack_from("!HHI", frame, tcp)
    flags = frame[tcp + 13]
    return (source, source_port, port), sequence, frame[tcp + 4 * (frame[tcp + 12] >> 4):end], flags & 0x12 == 0x02


def main():
    connections = {}  # {key: (first sequence number, {offset: data})}
    sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    written = time.monotonic()
    while True:
        ready, _, _ = select.select([0, sniffer], [], [], 0.5)
        if 0 in ready and not os.read(0, 1):
            return
        if sniffer in ready:
            segment = payload(sniffer.recv(65536))
            if segment:
                key, sequence, data, is_first = segment
                if is_first and sum(other[2] == key[2] for other in connections) < MAX_CONNECTIONS:
                    connections[key] = (sequence + 1, {})
                if key in connections and data:
                    first, parts = connections[key]
                    offset = (sequence - first) % (1 << 32)
                    if offset < MAX_BYTES:
                        parts[offset] = data
        if time.monotonic() - written > 1:
            written = time.monotonic()
            ports = {}
            for (_, _, port), (_, parts) in connections.items():
                stream = b""
                while len(stream) in parts:
                    stream += parts[len(stream)]
                if stream:
                    ports.setdefault(port, []).append(stream[:MAX_BYTES].hex())
            with open(sys.argv[1] + ".new", "w") as file:
                json.dump(ports, file)
            os.replace(sys.argv[1] + ".new", sys.argv[1])


if __name__ == "__main__":
    main()
