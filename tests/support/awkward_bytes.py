"""Generates strings that shells, text codecs and parsers tend to change in transit."""

FIXED = [b"", b" ", b"  two  words ", b"'single'", b'"double"', b"it's", b"\\", b"a\\nb", b"$HOME", b"${HOME}", b"$(id)",
         b"$(x)", b"`id`", b"64(x2)", b"a;b", b"a&&b|c>d<e", b"*", b"?[a-z]", b"~", b"#x", b"!", b"%h%n%%", b"{a,b}",
         b"line\nbreak", b"\n", b"\r\n", b"\ttab", b"\x1b[31m", b"\x01\x02\x7f", b"\xff\xfe", b"\xc3\x28",
         "é中\U0001f600".encode(), b"=", b"A=B", b"--num_nodes", b"-1", b"--", b'{"json": [1, "x"]}']


def awkward_strings(chance, count):
    """Returns `count` byte strings without NUL, some of them from FIXED; `chance` is a random.Random."""
    def one():
        if chance.random() < 0.4:
            return chance.choice(FIXED)
        # Some strings are longer than one network packet or the buffer of a pipe.
        length = chance.choice([1, 2, 7, 40, 300]) if chance.random() < 0.95 else 70000
        return bytes(chance.randrange(1, 256) for _ in range(length))
    return [one() for _ in range(count)]
