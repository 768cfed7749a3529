"""Tests dslaunch-train data prepare, which `dslaunch data prepare` runs, against the tokenizers package and a NumPy
writer of Megatron's format."""

import json
import os
import pathlib
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

import numpy
import tokenizers_made

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from spawn import TRAIN, run, start_once  # noqa: E402

BAD_INPUT, USAGE, IO = 65, 64, 74
MIB = 1 << 20


def megatron(documents, dtype):
    """Returns the contents of the .bin and .idx files of lists of tokens, as Megatron-LM's IndexedDatasetBuilder
    writes them."""
    code = {numpy.uint16: 8, numpy.int32: 4}[dtype]
    arrays = [numpy.array(document, dtype=dtype) for document in documents]
    sizes = numpy.array([len(array) for array in arrays], dtype=numpy.int32)
    pointers = numpy.concatenate([[0], numpy.cumsum([array.nbytes for array in arrays])[:-1]]).astype(numpy.int64)
    index = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, code, len(sizes), len(sizes) + 1)
    index += sizes.tobytes() + pointers.tobytes() + numpy.arange(len(sizes) + 1, dtype=numpy.int64).tobytes()
    return b"".join(array.tobytes() for array in arrays), index


class PrepareTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.made = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.made)
        cls.tokenizers = {}
        for make, end in ((tokenizers_made.gpt2, "<|endoftext|>"), (tokenizers_made.llama2, "</s>")):
            tokenizer = cls.tokenizers[make.__name__] = make()
            (cls.made / make.__name__).mkdir()
            tokenizer.save(str(cls.made / make.__name__ / "tokenizer.json"))
            (cls.made / make.__name__ / "tokenizer_config.json").write_text(json.dumps({"eos_token": end}))

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.seed = random.SystemRandom().randrange(1 << 30)
        print("seed", self.seed)
        self.random = random.Random(self.seed)

    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    def prepare(self, *inputs, tokenizer="gpt2", output="out", options=(), code=0, **kwargs):
        done = start_once.run([TRAIN, "data", "prepare", "--tokenizer", str(self.made / tokenizer), "--output",
                               str(self.folder / output), *options, "--", *inputs], **kwargs)
        self.assertEqual(done.returncode, code, done.stderr)
        if code == 0:
            self.assertEqual(done.stderr, "")
        else:
            self.assertRegex(done.stderr, r"\Adslaunch: data: .*\n\Z")
        return done

    def files(self, output="out"):
        return tuple((self.folder / (output + ending)).read_bytes() for ending in (".bin", ".idx"))

    def wanted(self, texts, tokenizer="gpt2"):
        package = self.tokenizers[tokenizer]
        end = package.token_to_id("<|endoftext|>" if tokenizer == "gpt2" else "</s>")
        return megatron([package.encode(text).ids + [end] for text in texts], numpy.uint16)

    def test_lines_and_texts_become_documents_in_order(self):
        texts = [tokenizers_made.random_text(self.random) for _ in range(300)]
        lines = "\n\n".join(json.dumps({"n": i, "body": text}) for i, text in enumerate(texts)) + '\n{"body": ""}'
        inputs = [self.write("a.jsonl", lines), self.write("b.txt", "A text\nof two lines.\n"), self.write("empty", "")]
        for tokenizer in self.tokenizers:
            done = self.prepare(*inputs, tokenizer=tokenizer, output=tokenizer, options=["--key", "body"])
            bin, idx = self.wanted(texts + ["A text\nof two lines.\n"], tokenizer)
            self.assertEqual(self.files(tokenizer), (bin, idx), tokenizer)
            self.assertEqual(done.stdout, "301 documents, %d tokens of 2 bytes are written to %s.bin and .idx; 2 empty "
                             "documents are left out\n" % (len(bin) // 2, self.folder / tokenizer))
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()),
                         ["a.jsonl", "b.txt", "empty", "gpt2.bin", "gpt2.idx", "llama2.bin", "llama2.idx"])

    def test_files_do_not_depend_on_threads(self):
        lines = "".join(json.dumps({"text": tokenizers_made.random_text(self.random) * 20}) + "\n" for _ in range(8000))
        pages = "\n".join(tokenizers_made.corpus()[:200])
        inputs = [self.write("a.json", lines), self.write("b", pages * (3 * MIB // len(pages) + 1))]
        self.assertGreater(os.path.getsize(inputs[0]), 3 * MIB)
        for threads in (1, 2, 7):
            self.prepare(*inputs, output=str(threads), options=["--threads", str(threads)])
        self.assertEqual(self.files("1"), self.files("2"))
        self.assertEqual(self.files("1"), self.files("7"))

    def test_large_text_has_tokens_of_whole_text(self):
        pages = "\n".join(tokenizers_made.corpus()[:200])
        text = pages * (5 * MIB // 2 // len(pages) + 1)
        path = self.write("text", text)
        for tokenizer in self.tokenizers:
            self.prepare(path, tokenizer=tokenizer, output=tokenizer)
            self.assertEqual(self.files(tokenizer), self.wanted([text], tokenizer), tokenizer)

    def test_text_without_newlines_is_cut_between_characters(self):
        text = "漢" * MIB + "\n" + " " * 2 * MIB
        self.prepare(self.write("text", text))
        tokens = numpy.frombuffer(self.files()[0], dtype=numpy.uint16)
        self.assertEqual(self.tokenizers["gpt2"].decode(list(tokens)), text)

    def test_trainer_reads_files(self):
        self.prepare(self.write("a.txt", "The documentation of a launcher. " * 200))
        recipe = {"model": {"type": "gpt2", "vocab_size": 2001, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2},
                  "data": {"type": "tokens", "path": str(self.folder / "out")}, "engine": {"train_batch_size": 2},
                  "run": {"steps": 2}}
        rank, = run(recipe)
        self.assertEqual((rank.code, rank.err), (0, ""))

    def test_existing_files_are_replaced_only_with_force(self):
        path = self.write("a.txt", "one")
        self.prepare(path)
        before = self.files()
        other = self.write("b.txt", "another text")
        done = self.prepare(other, code=USAGE)
        self.assertIn("out.bin is there already; give another --output, or --force to replace it", done.stderr)
        self.assertEqual(self.files(), before)
        bad = self.write("c.jsonl", "[")
        self.prepare(bad, options=["--force"], code=BAD_INPUT)
        self.assertEqual(self.files(), before)
        self.prepare(other, options=["--force"])
        self.assertEqual(self.files(), self.wanted(["another text"]))

    def test_bad_input_is_named_by_file_and_line(self):
        good = '{"text": "a"}\n'
        cases = [("a.jsonl", good + "\n" + "{]\n", ":3: not valid JSON"),
                 ("a.jsonl", good + '{"txt": "a"}\n', ":2: has no text under the key 'text'; name the key of the text"),
                 ("a.jsonl", good + '{"text": 1}', ":2: has no text under the key 'text'"),
                 ("a.jsonl", good + '["text"]', ":2: has no text"),
                 ("a.txt", b"ab\xff", ": has a byte that is not UTF-8, at offset 2"),
                 ("a.txt", b"a" * 3 * MIB + b"\xc3", "offset %d" % (3 * MIB)),
                 ("a.txt", "", "the input has no text: all its documents are empty")]
        for name, content, problem in cases:
            path = self.write(name, content)
            self.assertIn(problem, self.prepare(path, code=BAD_INPUT).stderr)
        self.assertIn("is a folder", self.prepare(str(self.folder), code=BAD_INPUT).stderr)
        self.assertIn("missing does not exist", self.prepare(str(self.folder / "missing"), code=BAD_INPUT).stderr)
        path = self.write("late.jsonl", good * 100000 + "{]\n" + good)
        self.assertIn("late.jsonl:100001: not valid JSON", self.prepare(path, options=["--threads", "3"],
                                                                       code=BAD_INPUT).stderr)
        self.assertEqual([path.name for path in self.folder.iterdir() if "out" in path.name], [])

    def test_tokenizer_without_end_is_refused(self):
        (self.folder / "t").mkdir()
        shutil.copy(self.made / "gpt2" / "tokenizer.json", self.folder / "t")
        text = self.write("a.txt", "one")
        tokenizer = str(self.folder / "t")
        done = self.prepare(text, tokenizer=tokenizer, code=BAD_INPUT)
        self.assertIn("tokenizer_config.json: cannot be read", done.stderr)
        for config, problem in (("{}", "names no eos_token"), ('{"eos_token": "<x>"}', "'<x>', which tokenizer.json lacks")):
            (self.folder / "t" / "tokenizer_config.json").write_text(config)
            self.assertIn(problem, self.prepare(text, tokenizer=tokenizer, code=BAD_INPUT).stderr)
        (self.folder / "t" / "tokenizer_config.json").write_text('{"eos_token": {"content": "<|endoftext|>"}}')
        self.prepare(text, tokenizer=tokenizer)
        self.assertEqual(self.files(), self.wanted(["one"]))

    def test_full_disk_leaves_no_files(self):
        path = self.write("a.txt", "The documentation of a launcher. " * 100000)

        def limit_files():
            resource.setrlimit(resource.RLIMIT_FSIZE, (MIB // 8, MIB // 8))
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

        done = subprocess.run([TRAIN, "data", "prepare", "--tokenizer", str(self.made / "gpt2"), "--output",
                               str(self.folder / "out"), "--", path], capture_output=True, text=True,
                              preexec_fn=limit_files)
        self.assertEqual(done.returncode, IO, done.stderr)
        self.assertIn("out.bin.partial: cannot be written: File too large", done.stderr)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["a.txt"])


if __name__ == "__main__":
    unittest.main()
