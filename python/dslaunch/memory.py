"""Stores copies of a rank's state in the memory of its node, which dslaunch --memory_checkpoint provides.

Reporter.save_in_memory() and Reporter.load_from_memory() use this module. The format of a slot, and the way in
which ranks agree on a copy, are those of the C++ SDK: trainer/memory_checkpoint/slot_header.h and agreement.h.
The contents of a copy have a format of this module: a header in JSON and the bytes of its arrays. Unlike a
pickle, reading it never runs code. Needs only the standard library, torch for tensors, and numpy for arrays.
"""

from __future__ import annotations

import json
import mmap
import os
import pathlib
import struct
import sys
import zlib
from dataclasses import dataclass
from typing import Any, Callable

from . import links

_SLOT_HEADER_BYTES = 4096
_FIELDS = struct.Struct("<8sQqIIQQI")  # magic, attempt, step, rank, world size, layout, bytes, CRC-32 of the bytes
_CRC = struct.Struct("<I")             # CRC-32 of the header's fields
_NOTED = struct.Struct("<qq")          # last completed step, and its complement
_NOTED_OFFSET = 64
_MAGIC = b"DSLCOPY1"
_LAYOUT = 0xDB2C2124421858E8  # LayoutHash("dslaunch python 1"), the layout of copies that this module writes
_ALIGNMENT = 64
_JSON_BYTES = struct.Struct("<Q")
_MAX_JSON_BYTES = 1 << 30

_Id = tuple[int, int]  # step and attempt of a copy; ranks only combine copies of one attempt


@dataclass(frozen=True)
class MemoryCopy:
    """A state that Reporter.load_from_memory() has read."""

    step: int
    state: Any  # state with the types that save_in_memory() got; arrays, tensors and bytes are new objects


@dataclass(frozen=True)
class Place:
    """The place of the rank that makes and reads copies."""

    attempt: int
    rank: int
    world_size: int
    ranks_here: int  # number of ranks that share the memory of this machine


class _Slot:
    """The memory of one copy: a header page, then the bytes of the copy."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        os.set_inheritable(fd, False)
        self._map: mmap.mmap | None = None
        self._open(os.fstat(fd).st_size)

    def _open(self, size: int) -> None:
        self._map = mmap.mmap(self._fd, size) if size > 0 else None

    @property
    def size(self) -> int:
        return len(self._map) if self._map is not None else 0

    def grow(self, size: int) -> None:
        if size > self.size:
            os.ftruncate(self._fd, size)
            self._open(size)

    def view(self) -> memoryview:
        return memoryview(self._map) if self._map is not None else memoryview(b"")

    def header(self) -> tuple[Any, ...] | None:
        """Returns the fields after the magic bytes; None if the slot has no copy or its header is damaged."""
        if self.size < _SLOT_HEADER_BYTES:
            return None
        view = self.view()
        fields = bytes(view[:_FIELDS.size])
        magic, *others = _FIELDS.unpack(fields)
        if magic != _MAGIC or _CRC.unpack_from(view, _FIELDS.size)[0] != zlib.crc32(fields):
            return None
        return tuple(others) if 0 < others[5] <= self.size - _SLOT_HEADER_BYTES and others[1] >= 0 else None

    def clear(self) -> None:
        self.view()[:_FIELDS.size + _CRC.size] = bytes(_FIELDS.size + _CRC.size)

    def write_header(self, *fields: int) -> None:
        encoded = _FIELDS.pack(_MAGIC, *fields)
        self.view()[:_FIELDS.size + _CRC.size] = encoded + _CRC.pack(zlib.crc32(encoded))


class Copies:
    """The two slots of a rank. They are written alternately, so that one copy is always intact."""

    def __init__(self, fds: tuple[int, int], place: Place) -> None:
        self._slots = [_Slot(fd) for fd in fds]
        self._place = place
        self._next = 0  # slot of the next copy
        self._largest = 0  # size of a copy for which the node is known to have room
        stored = self.stored()
        if stored:
            self.keep(stored[0])

    def _own_header(self, slot: _Slot) -> tuple[_Id, int, int] | None:
        header = slot.header()
        if header is None:
            return None
        attempt, step, rank, world_size, layout, size, crc = header
        if (rank, world_size, layout) != (self._place.rank, self._place.world_size, _LAYOUT) or attempt > self._place.attempt:
            return None
        return (step, attempt), size, crc

    def stored(self) -> list[_Id]:
        """Returns the copies whose headers are intact, newest first."""
        headers = [self._own_header(slot) for slot in self._slots]
        return sorted((header[0] for header in headers if header), reverse=True)

    def read(self, copy: _Id) -> memoryview | None:
        """Returns the bytes of a copy; None if the copy is damaged."""
        for slot in self._slots:
            header = self._own_header(slot)
            if header and header[0] == copy:
                content = slot.view()[_SLOT_HEADER_BYTES:_SLOT_HEADER_BYTES + header[1]]
                return content if zlib.crc32(content) == header[2] else None
        return None

    def keep(self, copy: _Id) -> None:
        """Sets the copy that the next copy must not replace."""
        for index, slot in enumerate(self._slots):
            header = self._own_header(slot)
            if header and header[0] == copy:
                self._next = 1 - index

    def why_no_room(self, size: int) -> str:
        """Returns why the node lacks memory for two copies of each of its ranks; an empty text if it does not."""
        if size <= self._largest:
            return ""
        ranks = self._place.ranks_here
        available = _available_bytes()
        needed = 2 * size * ranks
        if available and needed > available + sum(slot.size for slot in self._slots) * ranks:
            return (f"two copies of {ranks} rank{'s' if ranks > 1 else ''} take {needed / 1e9:.1f} GB, and this node has "
                    f"{available / 1e9:.1f} GB of memory available")
        self._largest = size
        return ""

    def write(self, step: int, size: int, fill: Callable[[memoryview], None]) -> None:
        slot = self._slots[self._next]
        slot.grow(_SLOT_HEADER_BYTES + size)
        slot.clear()
        content = slot.view()[_SLOT_HEADER_BYTES:_SLOT_HEADER_BYTES + size]
        fill(content)
        slot.write_header(self._place.attempt, step, self._place.rank, self._place.world_size, _LAYOUT, size, zlib.crc32(content))
        self._next = 1 - self._next

    def note_step(self, step: int) -> None:
        self._slots[0].grow(_SLOT_HEADER_BYTES)
        _NOTED.pack_into(self._slots[0].view(), _NOTED_OFFSET, step, ~step)

    def noted_step(self) -> int | None:
        if self._slots[0].size < _SLOT_HEADER_BYTES:
            return None
        step, complement = _NOTED.unpack_from(self._slots[0].view(), _NOTED_OFFSET)
        return step if step >= 0 and complement == ~step else None


def _available_bytes() -> int:
    """Returns the bytes that the system, or the cgroup of this process, has available; 0 if unknown."""
    def number(path: pathlib.Path) -> int | None:
        try:
            return int(path.read_text())
        except (OSError, ValueError):
            return None  # the text is "max" if there is no limit

    try:
        lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
        available = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
        group = next(line[3:] for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
    except (OSError, ValueError, StopIteration):
        return 0
    root = pathlib.Path("/sys/fs/cgroup")
    for folder in (root / group.lstrip("/"), *(root / group.lstrip("/")).parents):
        limit, used = number(folder / "memory.max"), number(folder / "memory.current")
        if limit is not None and used is not None:
            available = min(available, max(0, limit - used))
        if folder == root:
            break
    return available


# --- agreement ---

def choose(offers: list[dict[str, Any]]) -> tuple[_Id | None, bool, str]:
    """Returns the newest copy that all ranks offer, whether all have verified it, and the reason if there is none.

    See agreement.h.
    """
    copies = [[tuple(copy) for copy in offer["copies"]] for offer in offers]
    common = set(copies[0]).intersection(*copies[1:])
    if common:
        newest = max(common)
        return newest, all(offer["verified"] == list(newest) for offer in offers), ""
    for rank, own in enumerate(copies):
        if not own:
            return None, True, f"rank {rank} has none"
    def steps(own: list[Any]) -> str:
        return " and ".join(f"{step} (attempt {attempt})" for step, attempt in own)

    other = next((rank for rank, own in enumerate(copies) if own != copies[0]), len(copies) - 1)
    return None, True, f"no step is common to all ranks: rank 0 has {steps(copies[0])}, rank {other} has {steps(copies[other])}"


def agree(copies: Copies | None, exchange: links.Exchange, after_step: int) -> tuple[_Id, memoryview] | str:
    """Returns the newest copy that all ranks have intact, or the reason if there is none. Collective.

    `copies` is None on a rank that cannot make copies.
    """
    stored = [copy for copy in copies.stored() if copy[0] > after_step] if copies is not None else []
    verified: tuple[_Id, memoryview] | None = None
    while True:
        offer = {"copies": stored, "verified": verified[0] if verified else None}
        newest, final, why = exchange(offer, choose)
        if newest is None:
            return why
        newest = (newest[0], newest[1])
        assert copies is not None  # this rank has offered the copy
        if verified is None or verified[0] != newest:
            content = copies.read(newest)
            if content is not None:
                verified = newest, content
            else:
                stored = [copy for copy in stored if copy != newest]
                print(f"dslaunch: the copy of step {newest[0]} in memory is damaged: its checksum is wrong", file=sys.stderr,
                      flush=True)
        elif final:
            copies.keep(newest)
            return verified


# --- what a copy contains ---

def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


class _Writer:
    """Describes a state in JSON, and collects functions that fill the bytes of the copy."""

    def __init__(self) -> None:
        self.size = 0
        self.fills: list[tuple[int, int, Callable[[memoryview], None]]] = []

    def _place(self, size: int, fill: Callable[[memoryview], None]) -> int:
        start = -(-self.size // _ALIGNMENT) * _ALIGNMENT
        self.size = start + size
        if size > 0:
            self.fills.append((start, size, fill))
        return start

    def describe(self, value: Any, where: str) -> Any:
        if value is None or isinstance(value, (bool, int, float, str)):
            return {"value": value}
        if isinstance(value, dict):
            for key in value:
                if not isinstance(key, (str, int)) or isinstance(key, bool):
                    raise TypeError(f"save_in_memory: {where} has the key {key!r}; keys are texts or whole numbers")
            return {"dict": [[key, self.describe(item, f"{where}[{key!r}]")] for key, item in value.items()]}
        if isinstance(value, (list, tuple)):
            kind = "tuple" if isinstance(value, tuple) else "list"
            return {kind: [self.describe(item, f"{where}[{index}]") for index, item in enumerate(value)]}
        if isinstance(value, (bytes, bytearray, memoryview)):
            content = memoryview(value).cast("B")
            return {"bytes": [self._place(len(content), lambda to: to.__setitem__(slice(None), content)), len(content)]}
        if _is_tensor(value):
            return {"tensor": self._tensor(value, where)}
        if _is_array(value):
            return {"array": self._array(value, where)}
        if hasattr(value, "item") and "numpy" in type(value).__module__:
            return {"value": value.item()}
        raise TypeError(f"save_in_memory: {where} is of type {type(value).__name__}; a state has dicts, lists, tuples, numbers, "
                        "texts, bytes, numpy arrays and torch tensors")

    def _tensor(self, value: Any, where: str) -> list[Any]:
        import torch
        if value.layout != torch.strided or value.is_quantized:
            raise TypeError(f"save_in_memory: {where} is a sparse or quantized tensor; save a dense one")
        source = value.detach()

        def fill(to: memoryview) -> None:
            torch.frombuffer(to, dtype=source.dtype).copy_(source.reshape(-1))

        size = source.numel() * source.element_size()
        return [str(source.dtype).removeprefix("torch."), list(source.shape), self._place(size, fill), size]

    def _array(self, value: Any, where: str) -> list[Any]:
        import numpy
        if value.dtype.hasobject or value.dtype.fields is not None:
            raise TypeError(f"save_in_memory: {where} is an array of {value.dtype}; save one of numbers")

        def fill(to: memoryview) -> None:
            numpy.frombuffer(to, dtype=value.dtype).reshape(value.shape)[...] = value

        return [value.dtype.str, list(value.shape), self._place(value.nbytes, fill), value.nbytes]


def write_state(copies: Copies, step: int, state: Any) -> str:
    """Makes a copy. Returns why the node has no room for it; an empty text if the copy was made."""
    writer = _Writer()
    header = json.dumps(writer.describe(state, "state")).encode()
    start = -(-(_JSON_BYTES.size + len(header)) // _ALIGNMENT) * _ALIGNMENT
    size = start + writer.size
    why = copies.why_no_room(size)
    if why:
        return why

    def fill(content: memoryview) -> None:
        content[:_JSON_BYTES.size + len(header)] = _JSON_BYTES.pack(len(header)) + header
        for offset, length, fill_part in writer.fills:
            fill_part(content[start + offset:start + offset + length])

    copies.write(step, size, fill)
    return ""


def read_state(content: memoryview) -> Any:
    """Returns the state that write_state() wrote. Raises ValueError if the content is not valid."""
    if len(content) < _JSON_BYTES.size:
        raise ValueError("a copy in memory is too short")
    length = _JSON_BYTES.unpack_from(content)[0]
    if length > min(_MAX_JSON_BYTES, len(content) - _JSON_BYTES.size):
        raise ValueError("a copy in memory has an invalid header")
    tree = json.loads(bytes(content[_JSON_BYTES.size:_JSON_BYTES.size + length]))
    parts = content[-(-(_JSON_BYTES.size + length) // _ALIGNMENT) * _ALIGNMENT:]

    def part(start: int, size: int) -> memoryview:
        if not 0 <= start <= start + size <= len(parts):
            raise ValueError("a copy in memory has a part outside of it")
        return parts[start:start + size]

    def build(node: Any) -> Any:
        if not isinstance(node, dict) or len(node) != 1:
            raise ValueError("a copy in memory has an invalid header")
        (kind, value), = node.items()
        if kind == "value":
            return value
        if kind == "dict":
            return {key: build(item) for key, item in value}
        if kind == "list":
            return [build(item) for item in value]
        if kind == "tuple":
            return tuple(build(item) for item in value)
        if kind == "bytes":
            return bytes(part(*value))
        if kind == "tensor":
            return _read_tensor(part, *value)
        if kind == "array":
            return _read_array(part, *value)
        raise ValueError(f"a copy in memory has a part of the unknown kind {kind!r}")

    return build(tree)


def _read_tensor(part: Callable[[int, int], memoryview], dtype: str, shape: list[int], start: int, size: int) -> Any:
    import torch
    tensor = torch.empty(shape, dtype=getattr(torch, dtype))
    if size != tensor.numel() * tensor.element_size():
        raise ValueError("a copy in memory has a tensor of another size")
    if size > 0:
        tensor.reshape(-1).copy_(torch.frombuffer(part(start, size), dtype=tensor.dtype))
    return tensor


def _read_array(part: Callable[[int, int], memoryview], dtype: str, shape: list[int], start: int, size: int) -> Any:
    import numpy
    array = numpy.empty(shape, dtype=numpy.dtype(dtype))
    if size != array.nbytes:
        raise ValueError("a copy in memory has an array of another size")
    array[...] = numpy.frombuffer(part(start, size), dtype=array.dtype).reshape(shape)
    return array
