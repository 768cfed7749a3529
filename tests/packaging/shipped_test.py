"""Tests every shipped file: the source of its libraries, its hardening, the machine details it reveals, and the
third-party code inside it.
Also tests a build for another machine type, whose programs an emulator runs (try-aarch64)."""

import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest

BUILD = os.environ["DSLAUNCH_BUILD_DIR"]
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
with open(BUILD + "/CMakeCache.txt", encoding="utf-8") as cache_file:
    CACHE = cache_file.read()
PROGRAMS = ["dslaunch", "dslaunch-agent"] + (["dslaunch-train"] if "DSLAUNCH_TRAINER:BOOL=ON" in CACHE else [])
IS_CROSS_BUILD = "DSLAUNCH_SYSROOT:" in CACHE


def output(*command, **options):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100, check=True,
                          **options).stdout


def files_below(folder):
    """Returns the regular files below a folder. Does not follow links."""
    paths = [os.path.join(path, name) for path, _, names in os.walk(folder) for name in names]
    return sorted(path for path in paths if not os.path.islink(path))


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


# These are the newest symbol versions that a program may need. They come from manylinux_2_28 (glibc 2.28, GCC 8), as
# for PyPI's torch.
LIMITS = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 25), "CXXABI": (1, 3, 11), "GCC": (8,)}


class Elf:
    def __init__(self, path):
        self.dynamic = output("readelf", "--wide", "--dynamic", path)
        self.segments = output("readelf", "--wide", "--file-header", "--segments", path)
        self.symbols = output("readelf", "--wide", "--dyn-syms", path)
        self.versions = output("readelf", "--wide", "--version-info", path)
        with open(path, "rb") as file:
            self.content = file.read()

    def is_static(self):
        return "(NEEDED)" not in self.dynamic and "INTERP" not in self.segments

    def run_path(self):
        """Returns the elements of all its run paths."""
        return [element for paths in re.findall(r"\((?:RPATH|RUNPATH)\).*?\[(.*)\]", self.dynamic)
                for element in paths.split(":")]

    def needed(self):
        return re.findall(r"\(NEEDED\).*?\[(.*)\]", self.dynamic)


    def newest(self):
        """Returns {prefix: newest version} of the symbols that this file needs from other files."""
        needed = re.search(r"Version needs section.*?(?=\n\n|\Z)", self.versions, re.DOTALL)
        newest = {}
        for prefix, version in re.findall(r"Name: (\w+?)_([\d.]+)", needed[0] if needed else ""):
            numbers = tuple(map(int, version.split(".")))
            newest[prefix] = max(newest.get(prefix, ()), numbers)
        return newest


class ShippedTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="dslaunch-shipped-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.prefix = cls.folder + "/installed"
        output("cmake", "--install", BUILD, "--prefix", cls.prefix)
        cls.installed = [path for path in files_below(cls.prefix) if is_elf(path)]
        built = [path for name in ("bin", "lib") for path in files_below(BUILD + "/" + name) if is_elf(path)]
        cls.elves = {path: Elf(path) for path in cls.installed + built}
        for name in PROGRAMS:
            assert cls.prefix + "/bin/" + name in cls.elves and BUILD + "/bin/" + name in cls.elves, name

    def test_run_paths_exclude_the_current_folder(self):
        for path, elf in self.elves.items():
            for element in elf.run_path():
                self.assertRegex(element, r"^\$ORIGIN/.|^/.", "%s: %s" % (path, elf.dynamic))
            for library in elf.needed():
                self.assertTrue("/" not in library or library.startswith("/"), "%s: %s" % (path, elf.dynamic))

    def test_planted_library_is_not_loaded(self):
        here = self.folder + "/downloaded"
        os.mkdir(here)
        for library in {library for elf in self.elves.values() for library in elf.needed()}:
            with open(here + "/" + library, "w") as file:
                file.write("no library; who loads it fails\n")
        kept = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
        for bin_folder in BUILD + "/bin", self.prefix + "/bin":
            for name in PROGRAMS:
                self.assertIn(name, output(bin_folder + "/" + name, "--version", cwd=here, env=kept))

    def test_installed_files_find_libraries_beside_them(self):
        for path in self.installed:
            for element in self.elves[path].run_path():
                self.assertTrue(element.startswith("$ORIGIN/"), "%s: %s" % (path, element))

    def test_programs_are_hardened(self):
        for path, elf in self.elves.items():
            with self.subTest(path):
                self.assertIn("Type:                              DYN", elf.segments)
                self.assertIn("GNU_RELRO", elf.segments)
                self.assertRegex(elf.segments, r"GNU_STACK +(0x\w+ +){5}RW +0")
                if not elf.is_static():
                    self.assertIn("__stack_chk_fail", elf.symbols)
                if os.path.basename(path) not in PROGRAMS:
                    continue
                self.assertRegex(elf.dynamic, r"\(FLAGS_1\).*\bPIE\b")
                self.assertRegex(elf.dynamic, r"\(FLAGS_1\).*\bNOW\b")
                # A static program has no symbol names of the library, so the test searches for the messages of its
                # checks.
                if elf.is_static():
                    self.assertIn(b"stack smashing detected", elf.content)
                    self.assertIn(b"buffer overflow detected", elf.content)
                else:
                    self.assertRegex(elf.symbols, r"\b__(?!stack)\w+_chk\b")
                # The function is newer than GCC 8's library. So the file contains it, or LibTorch does.
                self.assertTrue("__glibcxx_assert_fail" in elf.symbols or b"%s:%d: %s: Assertion" in elf.content)

    @unittest.skipUnless(os.path.exists(BUILD + "/old-glibc"), "built for this system alone (OldGlibc.cmake says why)")
    def test_needs_no_symbols_newer_than_2018(self):
        for path, elf in self.elves.items():
            with self.subTest(path):
                newest = elf.newest()
                self.assertEqual({}, {prefix: version for prefix, version in newest.items()
                                      if version > LIMITS.get(prefix, ())})
                self.assertEqual(elf.is_static(), not newest)

    @unittest.skipUnless(os.path.exists(BUILD + "/old-glibc"), "built for this system alone (OldGlibc.cmake says why)")
    @unittest.skipIf(IS_CROSS_BUILD, "g++ is this machine's")
    @unittest.skipUnless(shutil.which("g++"), "there is no g++, which copies variables of shared libraries into programs")
    def test_copied_variable_of_libc_keeps_all_its_names(self):
        source, program = self.folder + "/copied.cc", self.folder + "/copied"
        with open(source, "w", encoding="utf-8") as file:
            file.write("#include <cerrno>\n#include <unistd.h>\n"
                       "int main() { return environ == nullptr || program_invocation_short_name == nullptr; }\n")
        subprocess.run(["g++", "-O2", "-fPIE", "-pie", source, "-L" + BUILD + "/old-glibc", "-o", program], check=True)
        self.assertIn("R_X86_64_COPY", output("readelf", "--relocs", "--wide", program))
        self.assertEqual(0, subprocess.run([program], check=False).returncode)

    def test_launcher_needs_only_the_c_library(self):
        libraries = set(self.elves[self.prefix + "/bin/dslaunch"].needed())
        self.assertLessEqual(libraries, {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2",
                                         "ld-linux-aarch64.so.1"})

    def test_agent_runs_without_files_of_the_node(self):
        for folder in BUILD, self.prefix:
            agent = folder + "/bin/dslaunch-agent"
            elf = self.elves[agent]
            self.assertTrue(elf.is_static(), elf.dynamic)
            if not IS_CROSS_BUILD:  # ldd runs the program
                self.assertIn("statically linked", output("ldd", agent))
            # Names of glibc's modules for names and accounts have this form.
            self.assertNotIn(b"libnss_", elf.content)
            # The program also runs in a folder without any other file.
            root = self.folder + "/nothing-else"
            os.makedirs(root, exist_ok=True)
            shutil.copy(agent, root)
            isolated = ["unshare", "--user", "--map-root-user", "chroot", root, "/dslaunch-agent", "--version"]
            self.assertRegex(output(*isolated), r"^dslaunch-agent [\d.]+ \(build [0-9a-f]{40}\)\n$")

    def commands(self):
        with open(BUILD + "/compile_commands.json") as file:
            return [(entry["file"], entry["command"]) for entry in json.load(file)]

    def test_every_object_is_hardened(self):
        wanted = ["-fstack-protector-strong", "-D_GLIBCXX_ASSERTIONS", "-fPIE"]
        for flag, variable in (("-fstack-clash-protection", "DSLAUNCH_HAS_fstack_clash_protection"),
                               ("-fcf-protection=full", "DSLAUNCH_HAS_fcf_protection_full"),
                               ("-mbranch-protection=standard", "DSLAUNCH_HAS_mbranch_protection_standard")):
            if re.search(r"^%s:INTERNAL=1$" % variable, CACHE, re.MULTILINE):
                wanted.append(flag)
        commands = self.commands()
        self.assertGreater(len(commands), 150)
        for file, command in commands:
            for flag in wanted:
                self.assertIn(" %s " % flag, command, file)
            if re.search(r" -O[1-3s] (?!.* -O0 )", command):
                self.assertRegex(command, r" -D_FORTIFY_SOURCE=[23] (?!.* -U_FORTIFY_SOURCE )", file)

    def test_files_do_not_contain_the_build_folder(self):
        for path in files_below(self.prefix):
            with open(path, "rb") as file:
                content = file.read()
            for place in SOURCE, BUILD:
                self.assertNotIn(place.encode() + b"/", content, path)

    def test_sbom_lists_third_party_code(self):
        with open(self.prefix + "/share/dslaunch/sbom.cdx.json") as file:
            components = json.load(file)["components"]
        inside = {}
        for component in components:
            self.assertRegex(component["version"], r"\d", component)
            self.assertIn(component["version"].replace("+", "%2B"), component["purl"])
            values = lambda kind: [p["value"] for p in component["properties"] if p["name"] == "dslaunch:" + kind]
            for program in values("program"):
                inside.setdefault(program, set()).update(values("file"))
        for program in PROGRAMS:
            link = output("ninja", "-C", BUILD, "-t", "commands", "bin/" + program).splitlines()[-1]
            archives = {os.path.basename(word) for word in shlex.split(link)
                        if word.startswith("/") and word.endswith(".a")}
            self.assertEqual(archives - inside[program], set(), program)
            self.assertIn("json.hpp", inside[program])
        self.assertLessEqual({"libgrpc++.a", "libssl.a", "libcrypto.a", "libstdc++.a"}, inside["dslaunch-agent"])


if __name__ == "__main__":
    unittest.main()
