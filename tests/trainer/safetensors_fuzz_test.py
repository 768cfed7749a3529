"""Compares the trainer's reader of safetensors files with the format's own library, on valid and on modified files."""

import json
import os
import random
import re
import struct
import subprocess
import tempfile
import unittest
import zlib

import numpy
import safetensors
import safetensors.numpy

READER = os.environ["DSLAUNCH_TENSOR_FILES"]
FULL = os.environ.get("DSLAUNCH_TEST_FULL") == "1"
OURS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1,
        "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1}
THEIRS = {"F8_E8M0": 1, "F8_E4M3FNUZ": 1, "F8_E5M2FNUZ": 1, "C64": 8}  # and some types smaller than a byte

# Cases that trainer/checkpoint/safetensors.h rejects although the format's own library accepts them.
STRICTER = {
    "header cap": r"declares a header of \d+ bytes; at most 16777216 are read",
    "space before the header": r"its header is not a JSON object",
    "key twice": r"the key .* is given twice",
    "levels": r"nested more than 64 levels deep",
    "format": r"unknown dtype",
    "entry": r"must have dtype, shape and data_offsets, and nothing else",
    "size": r"its shape is too large|a dimension is not a whole number of at least 0",
}


def file_of(header, data=b""):
    return struct.pack("<Q", len(header)) + header + data


def encoded(header):
    return json.dumps(header, ensure_ascii=False).encode("utf-8", "surrogatepass")


def theirs(content):
    try:
        found = safetensors.deserialize(content)
    except safetensors.SafetensorError as error:
        return str(error), None
    return "", {name: [t["dtype"], t["shape"], zlib.crc32(t["data"])] for name, t in found}


class SafetensorsFuzzTest(unittest.TestCase):
    def setUp(self):
        self.seed = random.randrange(1 << 32)
        print("seed", self.seed, flush=True)
        self.random = random.Random(self.seed)

    def ours(self, contents):
        """Returns the trainer's result for each file: (refusal, tensors)."""
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for number, content in enumerate(contents):
                paths.append(os.path.join(folder, "%d.safetensors" % number))
                with open(paths[-1], "wb") as file:
                    file.write(content)
            out = subprocess.run([READER], input="\n".join(paths) + "\n", text=True, stdout=subprocess.PIPE, check=True,
                                 timeout=300).stdout.splitlines()
        said = [json.loads(line) for line in out]
        self.assertEqual(len(said), len(contents))
        for path, one in zip(paths, said):
            if "refused" in one:
                self.assertTrue(one["refused"].startswith(path + ": "), one)
        return [(one.get("refused", ""), one.get("tensors")) for one in said]

    def compare(self, contents):
        """Returns how many files both readers accept, how many both reject, and how often only the trainer rejects
        for each reason."""
        accepted, refused, stricter = 0, 0, {}
        for content, (refusal, tensors) in zip(contents, self.ours(contents)):
            other_refusal, other_tensors = theirs(content)
            shown = "seed %d, %r: we say %r, they say %r" % (self.seed, content[:600], refusal, other_refusal)
            if not refusal:
                self.assertEqual(other_refusal, "", shown)
                self.assertEqual(tensors, other_tensors, shown)
                accepted += 1
            elif other_refusal:
                refused += 1
            else:
                reasons = [name for name, words in STRICTER.items() if re.search(words, refusal)]
                self.assertEqual(len(reasons), 1, shown)
                stricter[reasons[0]] = stricter.get(reasons[0], 0) + 1
        return accepted, refused, stricter

    def valid(self):
        """Returns the header and the data of a valid file."""
        dice, header, data = self.random, {}, b""
        if dice.random() < 0.4:
            header["__metadata__"] = {"format": "pt", "\u00fc": "\u2603\n"[:dice.randrange(3)]}
        names = ["a", "layer.0.weight", "\u00fcml\u00e4ut", "\u2603", "\U0001f600", "", " ", "a/b", "../x", "/etc/passwd", "n\0l",
                 "q\"\\", "tab\t", "x" * 300]
        for name in dice.sample(names, dice.randrange(6)):
            dtype = dice.choice(list(OURS))
            shape = [dice.choice((0, 1, 1, 2, 3, 5)) for _ in range(dice.randrange(4))]
            size = OURS[dtype]
            for dim in shape:
                size *= dim
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + size]}
            data += dice.randbytes(size)
        items = list(header.items())
        dice.shuffle(items)  # the order in the header is irrelevant
        return dict(items), data

    def test_both_parsers_read_same_tensors_from_valid_files(self):
        contents = []
        for _ in range(1500):
            header, data = self.valid()
            text = encoded(header) if self.random.random() < 0.5 else json.dumps(header).encode()
            contents.append(file_of(text + b" " * self.random.randrange(20), data))
        arrays = {"f": numpy.arange(6, dtype=numpy.float32).reshape(2, 3), "none": numpy.zeros((0, 4)), "one": numpy.array(7)}
        contents += [safetensors.numpy.save(arrays), safetensors.numpy.save({}), safetensors.numpy.save(arrays, {"k": "v"})]
        # Headers of every length up to 1500, including lengths that look like the start of a pickle.
        contents += [file_of(b"{" + b" " * length + b"}") for length in range(1500)]
        self.assertEqual(self.compare(contents), (len(contents), 0, {}))

    def mutated(self):
        dice = self.random
        header, data = self.valid()
        kind = dice.randrange(6)
        if kind == 0:  # changes bytes of the file
            content = bytearray(file_of(encoded(header), data))
            for _ in range(1 + dice.randrange(3)):
                content[dice.randrange(len(content))] = dice.choice((dice.randrange(256), 0, 255))
            return bytes(content)
        if kind == 1:  # changes the length of the file
            content = file_of(encoded(header), data)
            return content[:dice.randrange(len(content))] if dice.random() < 0.7 else content + b"\0" * dice.randrange(1, 9)
        if kind in (2, 3):  # changes values in the header
            for _ in range(1 + dice.randrange(2)):
                self.change_value(header)
            return file_of(encoded(header), data)
        text = encoded(header)
        at = dice.randrange(len(text))
        if kind == 4:  # changes the text of the header
            words = [b"/**/", b"//\n", b"null", b"{}", b"[]", b"\0", b"\xff", b"\\ud800", b",", b"}", b"\"", b" ", b"\n", b"\x0b",
                     b"\xef\xbb\xbf", b"1e3", b"-0", b"0x1", b"1.0", b"18446744073709551616", b"[" * 200 + b"]" * 200]
            return file_of(text[:at] + dice.choice(words) + text[at + dice.randrange(3):], data)
        # Duplicates a whole entry, or one key of an entry.
        if dice.random() < 0.5 and header:
            name = dice.choice(list(header))
            entry = encoded({name: header[name]})[1:-1]
            return file_of(text[:-1] + b"," + entry + b"}", data)
        return file_of(text.replace(b"\"dtype\"", b"\"dtype\": \"U8\", \"dtype\"", 1), data)

    def change_value(self, header):
        dice = self.random
        edges = [0, 1, 2, -1, 2**31, 2**32, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30, 1.0, 1.5, True, None, "1", [], {}]
        names = [name for name in header if name != "__metadata__"]
        if not names or dice.random() < 0.15:
            header["__metadata__"] = dice.choice([None, 5, [], "x", {"a": 5}, {"a": None}, {"a": ["b"]}, {"a": {}}, {}, {"a": "b"}])
            return
        name = dice.choice(names)
        entry = header[name]
        if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= entry.keys():
            return
        kind = dice.randrange(10)
        if kind == 0:
            entry["dtype"] = dice.choice([*OURS, *THEIRS, "F4", "F6_E2M3", "f32", "", None, 3, ["F32"], "F32\0"])
        elif kind == 1 and isinstance(entry["shape"], list):
            entry["shape"].insert(dice.randrange(len(entry["shape"]) + 1), dice.choice(edges))
        elif kind == 2 and isinstance(entry["shape"], list):
            entry["shape"] += [dice.choice((2**62, 2**63, 2**32)), dice.choice((0, 2, 4, 2**32))]
        elif kind == 3 and isinstance(entry["data_offsets"], list) and entry["data_offsets"]:
            entry["data_offsets"][dice.randrange(len(entry["data_offsets"]))] = dice.choice(edges)
        elif kind == 4:
            other = header[dice.choice(names)]
            if isinstance(other, dict) and "data_offsets" in other:
                entry["data_offsets"] = other["data_offsets"]
        elif kind == 5:
            del entry[dice.choice(list(entry))]
        elif kind == 6:
            entry[dice.choice(("strides", "Dtype", "", "__metadata__"))] = dice.choice(edges)
        elif kind == 7:
            header[name] = dice.choice([*edges, list(entry.values()), [entry["dtype"], entry["shape"]]])
        elif kind == 8:
            del header[name]
        else:
            entry[dice.choice(("shape", "data_offsets", "dtype"))] = dice.choice(edges)

    def test_both_parsers_agree_on_modified_files(self):
        contents = [self.mutated() for _ in range(40000 if FULL else 6000)]
        accepted, refused, stricter = self.compare(contents)
        print("both accept %d, both refuse %d, we alone refuse %s" % (accepted, refused, stricter))
        self.assertGreater(accepted, 100)
        self.assertGreater(refused, 1000)

    def test_trainer_rejects_more_than_the_library(self):
        def entry(**keys):
            return dict({"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}, **keys)

        one = json.dumps(entry()).encode()
        nothing = {"shape": [0], "data_offsets": [0, 0]}
        deep = b"[" * 70 + b"]" * 70
        cases = {
            "header cap": file_of(b"{" + b" " * (16 << 20) + b"}"),
            "space before the header": file_of(b" {}"),
            "key twice": file_of(b'{"a": %s, "a": %s}' % (one, one), b"x"),
            "levels": file_of(b'{"a": {"x": %s, "dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}' % deep, b"x"),
            "format": file_of(encoded({"a": entry(dtype="C64", **nothing)})),
            "entry": file_of(b'{"a": ["U8", [1], [0, 1]]}', b"x"),
            "size": file_of(encoded({"a": entry(shape=[2**63, 0], data_offsets=[0, 0])})),
        }
        self.assertEqual(cases.keys(), STRICTER.keys())
        for name, content in cases.items():
            with self.subTest(name):
                self.assertEqual(self.compare([content]), (0, 0, {name: 1}))
        self.compare([file_of(encoded({"a": entry(dtype=dtype, **nothing)})) for dtype in [*OURS, *THEIRS]])


if __name__ == "__main__":
    unittest.main()
