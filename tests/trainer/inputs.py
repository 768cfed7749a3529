"""Inputs that tests make: a part of Fashion-MNIST, a text."""

import gzip
import math
import os
import random
import struct

from spawn import DATA


def write_idx_part(folder, samples):
    """The first samples of Fashion-MNIST: {"train": how many, "t10k": how many}."""
    for split, count in samples.items():
        for kind, dims in (("images-idx3", 3), ("labels-idx1", 1)):
            name = "%s-%s-ubyte" % (split, kind)
            with gzip.open(os.path.join(DATA, name + ".gz")) as file:
                magic, shape = file.read(4), list(struct.unpack(">%dI" % dims, file.read(4 * dims)))
                shape[0] = count
                with open(os.path.join(folder, name), "wb") as part:
                    part.write(magic + struct.pack(">%dI" % dims, *shape))
                    part.write(file.read(math.prod(shape)))


def write_text(file, size):
    """Sentences of made-up words, the same each time."""
    dice = random.Random(1)
    words = ["".join(dice.choices("aeioubdfgklmnprstz", k=dice.randint(2, 8))) for _ in range(200)]
    text = ""
    while len(text) < size:
        text += " ".join(dice.choices(words, k=dice.randint(4, 12))).capitalize() + ".\n"
    with open(file, "w") as out:
        out.write(text[:size])
