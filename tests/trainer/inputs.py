"""Creates inputs of tests: a part of Fashion-MNIST, and a text.

python3 inputs.py FOLDER     creates the part named by $TEST_DATA"""

import gzip
import math
import os
import random
import struct
import sys

from spawn import DATA

PART = {"train": 6000, "t10k": 1000}  # a tenth of the samples


def open_idx(folder, name):
    """Opens a file of Fashion-MNIST, compressed or not."""
    path = os.path.join(folder, name)
    return open(path, "rb") if os.path.exists(path) else gzip.open(path + ".gz")


def samples_of(split, folder=DATA):
    """Returns the number of samples of the split in `folder`."""
    with open_idx(folder, split + "-labels-idx1-ubyte") as file:
        return struct.unpack(">4xI", file.read(8))[0]


def write_idx_part(folder, samples):
    """Writes the first samples of Fashion-MNIST into `folder`. `samples`: {"train": number, "t10k": number}."""
    for split, count in samples.items():
        for kind, dims in (("images-idx3", 3), ("labels-idx1", 1)):
            name = "%s-%s-ubyte" % (split, kind)
            with open_idx(DATA, name) as file:
                magic, shape = file.read(4), list(struct.unpack(">%dI" % dims, file.read(4 * dims)))
                shape[0] = count
                with open(os.path.join(folder, name), "wb") as part:
                    part.write(magic + struct.pack(">%dI" % dims, *shape))
                    part.write(file.read(math.prod(shape)))


def write_text(file, size):
    """Writes sentences of invented words; the text is the same each time."""
    dice = random.Random(1)
    words = ["".join(dice.choices("aeioubdfgklmnprstz", k=dice.randint(2, 8))) for _ in range(200)]
    text = ""
    while len(text) < size:
        text += " ".join(dice.choices(words, k=dice.randint(4, 12))).capitalize() + ".\n"
    with open(file, "w") as out:
        out.write(text[:size])


if __name__ == "__main__":
    os.makedirs(sys.argv[1], exist_ok=True)
    write_idx_part(sys.argv[1], PART)
