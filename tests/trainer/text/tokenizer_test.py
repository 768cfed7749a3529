"""Tests that tokens equal the tokens of the tokenizers package, with tokenizer files that the package writes."""

import functools
import os
import random
import struct
import subprocess
import tempfile
import unittest

import tokenizers_made
from tokenizers import Tokenizer

FULL = os.environ.get("DSLAUNCH_TEST_FULL") == "1"
POINTS = [chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


@functools.cache
def made(make):
    return make()


def trace(tokenizer, texts):
    """Returns [(ids, decoded bytes)] of texts, by dslaunch-token-trace with a tokenizer of the package."""
    given = b"".join(struct.pack("<I", len(data)) + data for data in (text.encode() for text in texts))
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(os.path.join(folder, "tokenizer.json"))
        done = subprocess.run([os.environ["DSLAUNCH_TOKEN_TRACE"], folder], input=given, capture_output=True)
    assert done.returncode == 0, done.stderr
    results, at = [], 0
    for _ in texts:
        count, = struct.unpack_from("<I", done.stdout, at)
        ids = list(struct.unpack_from("<%di" % count, done.stdout, at + 4))
        at += 4 + 4 * count
        size, = struct.unpack_from("<I", done.stdout, at)
        results.append((ids, done.stdout[at + 4:at + 4 + size]))
        at += 4 + size
    assert at == len(done.stdout)
    return results


class TokenizerTest(unittest.TestCase):
    def compare(self, make, texts):
        tokenizer = made(make)
        for text, (ids, decoded) in zip(texts, trace(tokenizer, texts)):
            wanted = tokenizer.encode(text).ids
            self.assertEqual(ids, wanted, (make.__name__, text))
            shown = tokenizer.decode(wanted, skip_special_tokens=False)
            self.assertEqual(decoded.decode(), shown, (make.__name__, text))
            if make in tokenizers_made.LOSSLESS:
                bos = "<|begin_of_text|>" if make is tokenizers_made.llama3 else ""
                self.assertEqual(decoded.decode(), bos + text, (make.__name__, text))

    def test_ids_match_package_on_random_text(self):
        seed = random.SystemRandom().randrange(1 << 30)
        print("seed", seed)
        rng = random.Random(seed)
        for make in tokenizers_made.ALL:
            with self.subTest(make.__name__):
                self.compare(make, [tokenizers_made.random_text(rng) for _ in range(100000 if FULL else 500)])

    def test_ids_match_package_on_every_code_point(self):
        # Each code point is between letters, which shows how the patterns classify it. By default only every 61st is
        # tested.
        step = 1 if FULL else 61
        for make in (tokenizers_made.llama3, tokenizers_made.qwen2, tokenizers_made.deepseek, tokenizers_made.llama2):
            with self.subTest(make.__name__):
                points = POINTS[::step]
                self.compare(make, ["".join("a%s1%s " % (c, c) for c in points[at:at + 64])
                                    for at in range(0, len(points), 64)])


if __name__ == "__main__":
    unittest.main()
