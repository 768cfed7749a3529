"""Compares the trainer's reader of pickles and of torch.save's archives with Python's pickle and torch.load. Also
reads the output of the trainer's writer with torch.load."""

import collections
import json
import os
import pickle
import pickletools
import random
import struct
import subprocess
import tempfile
import unittest
import warnings
import zipfile
import zlib

import torch

READER = os.environ["DSLAUNCH_TORCH_ARCHIVES"]
DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.float64: "F64", torch.int64: "I64",
          torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
          torch.uint16: "U16", torch.uint32: "U32", torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2"}


class Point:
    def __init__(self, x, y):
        self.x, self.y = x, y


class Words(list):
    pass


def shown(value):
    """Returns a value in the form in which torch_archives.cc prints it."""
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        return value if -2**63 <= value < 2**63 else "too large"
    if kind is float:
        return {"double": value}
    if kind is bytes:
        return {"bytes": value.hex()}
    if kind is tuple:
        return {"tuple": [shown(item) for item in value]}
    if kind is list:
        return [shown(item) for item in value]
    if kind in (set, frozenset):
        return {"set": sorted(value)}
    if kind in (dict, collections.OrderedDict):
        return {"dict": [[shown(key), shown(item)] for key, item in value.items()]}
    if isinstance(value, torch.Tensor):
        flat = value.detach().contiguous().view(-1).view(torch.uint8) if value.numel() else torch.zeros(0)
        return {"tensor": [DTYPES[value.dtype], list(value.shape), zlib.crc32(flat.numpy().tobytes())]}
    if kind is torch.Size:
        return {"object": "torch.Size", "args": {"tuple": [{"tuple": list(value)}]}}
    if kind is Point:
        return {"object": __name__ + ".Point", "args": {"tuple": []}, "state": shown(vars(value))}
    if kind is Words:
        items = {"items": [shown(item) for item in value]} if value else {}
        return {"object": __name__ + ".Words", "args": {"tuple": []}, **items}
    raise AssertionError(kind)


def sorted_sets(value):
    """Returns the value with the items of sets sorted, because their order differs between runs of Python."""
    if isinstance(value, dict):
        return {key: sorted(item) if key == "set" else sorted_sets(item) for key, item in value.items()}
    return [sorted_sets(item) for item in value] if isinstance(value, list) else value


class TorchArchiveTest(unittest.TestCase):
    def setUp(self):
        self.seed = random.randrange(1 << 32)
        print("seed", self.seed, flush=True)
        self.random = random.Random(self.seed)
        torch.manual_seed(self.seed)
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def path(self, name):
        return os.path.join(self.folder, name)

    def read(self, *lines):
        out = subprocess.run([READER], input="\n".join(lines) + "\n", text=True, stdout=subprocess.PIPE, check=True,
                             timeout=120).stdout.splitlines()
        self.assertEqual(len(out), len(lines))
        return [json.loads(line) for line in out]

    def random_value(self, depth=0):
        dice = self.random
        kind = dice.randrange(8 if depth > 3 else 15)
        items = [self.random_value(depth + 1) for _ in range(dice.choice((0, 1, 2, 3, 5)))] if kind > 7 else []
        words = ["", "a", "layer.0.weight", "\u00fcml\u00e4ut", "\u2603", "\U0001f600", "n\0l", "x" * 300]
        return [lambda: None, lambda: dice.random() < 0.5, lambda: dice.choice((0, 1, 255, 256, 65535, 65536, -1, 2**31, -2**31,
                                                                                2**63 - 1, -2**63, 2**63, 10**30)),
                lambda: dice.choice((0.0, -1.5, 1e300, 5e-324)), lambda: dice.choice(words), lambda: dice.choice(words),
                lambda: dice.randbytes(dice.choice((0, 1, 300))), lambda: {*words[:dice.randrange(5)]},
                lambda: tuple(items), lambda: items, lambda: Words(items),
                lambda: {self.random.choice(words): item for item in items},
                lambda: collections.OrderedDict((number, item) for number, item in enumerate(items)),
                lambda: Point(items, None), lambda: [items, items]][kind]()

    def test_reads_same_values_as_pickle(self):
        values = [self.random_value() for _ in range(400)] + [{"key%d" % i: i for i in range(5000)}]
        lines, expected = [], []
        for number, value in enumerate(values):
            # Protocol 2 writes bytes, and protocol 3 writes sets, as calls of functions.
            is_old = not any(word in pickle.dumps(value, 2) for word in (b"_codecs", b"builtin"))
            protocol = self.random.choice((2, 3, 4, 5) if is_old else (4, 5))
            bytes_of = pickle.dumps(value, protocol)
            if self.random.random() < 0.3:
                bytes_of = pickletools.optimize(bytes_of)
            lines.append(self.path("%d.pkl" % number))
            with open(lines[-1], "wb") as file:
                file.write(bytes_of)
            expected.append({"value": sorted_sets(shown(value))})
        for number, found in enumerate(self.read(*lines)):
            self.assertEqual(sorted_sets(found), expected[number], "seed %d, value %d" % (self.seed, number))

    def tensors(self):
        """Returns tensors of all dtypes, with views, strides, Parameters and shared storages."""
        found = {}
        for dtype in DTYPES:
            base = torch.randint(0, 200, (6, 8)).to(torch.uint8).repeat_interleave(dtype.itemsize, 1).contiguous()
            whole = base.view(dtype) if dtype != torch.bool else base > 100
            name = str(dtype)
            found[name] = whole
            found[name + ".view"] = whole[2:4]
            found[name + ".column"] = whole[1:5, 3]
            found[name + ".transposed"] = whole.t()
            found[name + ".steps"] = whole[::2, 1::3]
            found[name + ".scalar"] = whole[5, 7]
            found[name + ".none"] = whole[:0]
            found[name + ".expanded"] = whole[:1].expand(3, 8)
            found[name + ".permuted"] = whole.view(2, 3, 8).permute(2, 0, 1)
        found["parameter"] = torch.nn.Parameter(torch.randn(3, 5))
        found["transposed parameter"] = torch.nn.Parameter(torch.randn(3, 5).t())
        found["frozen"] = torch.nn.Parameter(torch.randn(2), requires_grad=False)
        found["buffer"] = torch.nn.Buffer(torch.randn(2))
        found["channels last"] = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
        return found

    def test_reads_same_tensors_as_torch_load(self):
        model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 4))
        model[2].weight = torch.nn.Parameter(model[0].weight.t())
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        model(torch.randn(5, 4)).sum().backward()
        optimizer.step()
        saved = {"tensors": self.tensors(), "state": model.state_dict(), "optimizer": optimizer.state_dict(),
                 "size": torch.Size([2, 3]), "empty": {}, "shapes": [(1, 2), torch.Size([])]}
        path = self.path("weights.pt")
        torch.save(saved, path)
        self.assertEqual(self.read(path), [{"value": shown(torch.load(path, weights_only=False))}])

    def test_reads_files_without_checksums_or_with_many_members(self):
        saved = {str(number): torch.full((2,), float(number)) for number in range(66000)}  # zip64 from 65,535 on
        torch.save(saved, self.path("many.pt"))
        plain = self.path("plain.pt")
        torch.save({"w": torch.arange(6.)}, plain)
        with zipfile.ZipFile(plain) as source, zipfile.ZipFile(self.path("again.pt"), "w") as target:
            for member in source.namelist():  # without alignment, and with other headers
                target.writestr(member, source.read(member))
        many, again = self.read(self.path("many.pt"), self.path("again.pt"))
        self.assertEqual(many, {"value": shown(saved)})
        self.assertEqual(again, {"value": shown({"w": torch.arange(6.)})})

    def test_torch_load_reads_written_archives(self):
        saved = {"tensors": {name: tensor.detach() for name, tensor in self.tensors().items()}, "numbers": [1, -1, 2**40, 0.1],
                 "nested": {"none": None, "true": (True, ()), "text": "\u2603"}, 7: "int key"}
        path = self.path("weights.pt")
        torch.save(saved, path)
        self.read("write " + path)
        for mmap in (False, True):
            written = torch.load(path + ".written", weights_only=True, mmap=mmap)
            self.assertEqual(shown(written), shown(saved))
            self.assertTrue(all(tensor.is_contiguous() and tensor.data_ptr() % 64 == 0
                                for tensor in written["tensors"].values() if mmap and tensor.numel()))
        with zipfile.ZipFile(path + ".written") as archive:
            self.assertIsNone(archive.testzip())

    def refusals(self, contents):
        paths = []
        for number, content in enumerate(contents):
            paths.append(self.path("bad%d.pt" % number))
            with open(paths[-1], "wb") as file:
                file.write(content)
        found = self.read(*paths)
        for path, one in zip(paths, found):
            self.assertIn("refused", one)
            self.assertTrue(one["refused"].startswith(path + ": "), one)
        return [one["refused"] for one in found]

    def archive(self, replace=(), **more):
        """Returns an archive of {"w": a tensor of 6 numbers} with bytes of its pickle replaced, and with members
        added."""
        torch.save({"w": torch.arange(6.)}, self.path("good.pt"))
        with zipfile.ZipFile(self.path("good.pt")) as source, zipfile.ZipFile(self.path("new.pt"), "w") as target:
            for member in source.namelist():
                content = source.read(member)
                for old, new in replace if member.endswith("data.pkl") else ():
                    self.assertIn(old, content)
                    content = content.replace(old, new)
                target.writestr(member, more.pop(member.split("/")[1], content))
            warnings.simplefilter("ignore")  # because zipfile warns if a name is given twice
            for member, content in more.items():
                target.writestr(member, content)
        with open(self.path("new.pt"), "rb") as file:
            return file.read()

    def test_refuses_bad_archives(self):
        good = self.archive()
        end = good.rindex(b"PK\5\6")
        entry = good.index(b"PK\1\2")
        second = good.index(b"PK\1\2", entry + 1)
        with zipfile.ZipFile(self.path("deflated.pt"), "w", zipfile.ZIP_DEFLATED) as target:
            target.writestr("a/data.pkl", b"x" * 100)
        with open(self.path("deflated.pt"), "rb") as file:
            deflated = file.read()
        torch.save([1], self.path("old.pt"), _use_new_zipfile_serialization=False)
        with open(self.path("old.pt"), "rb") as file:
            old = file.read()
        cases = {
            "is not a zip archive, as torch.save writes since PyTorch 1.6": old,
            "is cut off, or is not a zip file": good[:-1],
            "it is compressed": deflated,
            "two members 'good/version'": self.archive(**{"good/version": b"3"}),
            "overlaps another": good[:second + 42] + good[entry + 42:entry + 46] + good[second + 46:],
            "leaves the archive's folder": self.archive(**{"good/../x": b""}),
            "is not in the folder of the others": self.archive(**{"other/x": b""}),
            "it ends outside of the file": good[:entry + 20] + struct.pack("<II", 2**31, 2**31) + good[entry + 28:],
            "its directory is outside of the file": good[:end + 12] + struct.pack("<II", 2**31, 5) + good[end + 20:],
            "its numbers are big-endian": self.archive(byteorder=b"big"),
            "has no member data.pkl": good.replace(b"data.pkl", b"data.pxl"),
            # The pickle describes 6 elements at offset 0, with a stride of 1.
            "storage '0' has 7 elements, and its member 24 bytes": self.archive([(b"cpuq\x06K\x06", b"cpuq\x06K\x07")]),
            "elements outside of its storage, which has 6": self.archive([(b"QK\x00K\x06\x85", b"QK\x01K\x06\x85")]),
            "whose offset, shape or stride is impossible": self.archive([(b"QK\x00K\x06\x85", b"QJ\xff\xff\xff\xffK\x06\x85")]),
            "repeats the elements of its storage": self.archive(
                [(b"K\x06\x85q\x08K\x01\x85", b"J\0\0\0\x40\x85q\x08K\x00\x85")]),
            "storage 'x' has no member": self.archive([(b"X\x01\0\0\0000", b"X\x01\0\0\0x")]),
        }
        for reason, refusal in zip(cases, self.refusals(cases.values())):
            self.assertIn(reason, refusal)
        huge = struct.pack("<q", 2**62)
        self.refusals([self.archive([(b"QK\x00K\x06\x85", b"QK\x00\x8a\x08" + huge + b"\x85")]),
                       self.archive([(b"K\x01\x85", b"\x8a\x08" + huge + b"\x85")]),
                       self.archive([(b"QK\x00K\x06\x85", b"Q\x8a\x08" + huge + b"K\x06\x85")])])

    def test_refuses_every_truncation(self):
        good = self.archive()
        self.refusals(good[:size] for size in range(len(good)))


if __name__ == "__main__":
    unittest.main()
