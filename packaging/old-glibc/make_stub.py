#!/usr/bin/env python3
"""Makes a shared library to link against in place of a newer one. It has the symbols of an older version.

    make_stub.py LIBRARY OUTPUT PREFIX=VERSION... -- COMPILER [OPTION...]     as in GLIBC=2.28, GLIBCXX=3.4.25

For each symbol of LIBRARY, OUTPUT has the newest version that is not newer than VERSION of its PREFIX. Newer
symbols, and versions with other prefixes, are left out. OUTPUT has no code: a program linked to it runs with the
real library. Names of the same variable (environ, __environ) are names of one variable in OUTPUT too. GCC may
give a program a copy of the variable, and the linker must then know that the copy has each of these names.
"""

import re
import subprocess
import sys


def numbers(version):
    return tuple(int(part) for part in version.split("."))


def read_symbols(library, limits):
    """Returns {name: (version as numbers, version, kind, bytes, place, whether it is weak)}, and all versions by
    prefix."""
    listing = subprocess.run(["readelf", "--wide", "--dyn-syms", library], check=True, capture_output=True, text=True)
    symbols, versions = {}, {}
    for line in listing.stdout.splitlines():
        fields = line.split()
        if len(fields) < 8 or fields[6] == "UND" or fields[4] not in ("GLOBAL", "WEAK", "UNIQUE"):
            continue
        named = re.fullmatch(r"(.+?)@@?(\w+)_([\d.]+)", fields[7])
        if not named or named[2] not in limits or numbers(named[3]) > limits[named[2]]:
            continue
        name, version, number = named[1], named[2] + "_" + named[3], numbers(named[3])
        versions.setdefault(named[2], {})[number] = version
        if name not in symbols or number > symbols[name][0]:
            symbols[name] = (number, version, fields[3], int(fields[2], 0), (fields[6], fields[1]), fields[4] == "WEAK")
    return symbols, versions


def assembler(symbols):
    sections = {"FUNC": ".text", "IFUNC": ".text", "OBJECT": ".data", "TLS": '.section .tbss,"awT",@nobits'}
    places = {}  # the names of each variable; each function has one name
    for name, (_, _, kind, _, place, _) in sorted(symbols.items()):
        if kind in sections:
            places.setdefault(place if kind == "OBJECT" else name, []).append(name)
    lines = []
    index = 0
    for names in places.values():
        section = sections[symbols[names[0]][2]]
        kind = "function" if section == ".text" else "object"
        lines += [section, ".balign 32"]
        for name in names:
            _, version, _, size, _, is_weak = symbols[name]
            label = f"stub.{index}"
            index += 1
            lines += [f".{'weak' if is_weak and kind == 'object' else 'globl'} {label}", f".type {label},@{kind}",
                      f".size {label},{size}", f".symver {label},{name}@@{version}", f"{label}:"]
        lines.append(f".zero {max(1, *(symbols[name][3] for name in names)) if kind == 'object' else 1}")
    return "\n".join(lines + ['.section .note.GNU-stack,"",@progbits', ""])


def version_script(versions):
    nodes = []
    for numbered in versions.values():
        before = ""
        for number in sorted(numbered):
            local = "" if nodes else "local: stub.*;"
            nodes.append(f"{numbered[number]} {{ {local} }} {before};")
            before = numbered[number]
    return "\n".join(nodes) + "\n"


def main():
    separator = sys.argv.index("--")
    library, output, *limits = sys.argv[1:separator]
    compiler = sys.argv[separator + 1:]
    symbols, versions = read_symbols(library, {prefix: numbers(version)
                                               for prefix, version in (limit.split("=") for limit in limits)})
    if not symbols:
        sys.exit(f"make_stub.py: {library} has no symbol of {' or '.join(limits)} or older")
    dynamic = subprocess.run(["readelf", "--wide", "--dynamic", library], check=True, capture_output=True, text=True)
    soname = re.search(r"\(SONAME\).*\[(.*)\]", dynamic.stdout)[1]
    with open(output + ".s", "w") as file:
        file.write(assembler(symbols))
    with open(output + ".map", "w") as file:
        file.write(version_script(versions))
    subprocess.run([*compiler, "-shared", "-nostdlib", "-Wl,-soname," + soname, "-Wl,--version-script=" + output + ".map",
                    output + ".s", "-o", output], check=True)


if __name__ == "__main__":
    main()
