"""Tests the basis of a build for another machine type, without such a build.
Covers the toolchain's messages, the wheel of agents, and the versions that must agree. tests/packaging/try-aarch64
runs the programs."""

import json
import pathlib
import re
import shutil
import struct
import subprocess
import tempfile
import unittest
import zipfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
MACHINES = {"x86_64": 62, "aarch64": 183}  # values of e_machine


def run(*command, **options):
    return subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100,
                          check=False, **options)


class Aarch64Test(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="dslaunch-aarch64-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def agent(self, name, machine, mark=b"DSLAUNCH-HELLO "):
        """Writes a file that begins like an agent for a machine type."""
        path = self.folder / name
        path.write_bytes(b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack("<HH", 3, machine) + mark + name.encode())
        return path

    def make_wheel(self, *agents):
        """Runs a copy of the script, which writes dist/ outside of this clone. Returns (process, wheel)."""
        clone = self.folder / "clone"
        (clone / "packaging").mkdir(parents=True, exist_ok=True)
        shutil.copy(SOURCE / "packaging/build-agents-wheel", clone / "packaging")
        shutil.copy(SOURCE / "CMakeLists.txt", clone)
        done = run(clone / "packaging/build-agents-wheel", *agents)
        return done, next(iter((clone / "dist").glob("*.whl")), None) if (clone / "dist").exists() else None

    def test_preset_uses_the_toolchain(self):
        presets = json.loads((SOURCE / "CMakePresets.json").read_text())["configurePresets"]
        preset, = [preset for preset in presets if preset["name"] == "aarch64"]
        self.assertEqual(preset["toolchainFile"], "${sourceDir}/packaging/cmake/aarch64.cmake")
        self.assertIn('"aarch64"', run("cmake", "--list-presets", cwd=SOURCE).stdout)

    def test_missing_sysroot_is_named_with_what_to_do(self):
        (self.folder / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.25)\nproject(none LANGUAGES CXX)\n")
        done = run("cmake", "-S", self.folder, "-B", self.folder / "build", f"-DDSLAUNCH_SYSROOT={self.folder}/none",
                   "--toolchain", SOURCE / "packaging/cmake/aarch64.cmake")
        self.assertNotEqual(0, done.returncode)
        self.assertRegex(done.stderr.replace("\n", " "), r"/none +has +no +libraries +for +aarch64; +run +packaging/fetch-aarch64 +first")

    def test_foreign_folder_is_not_replaced(self):
        (self.folder / "mine").mkdir()
        done = run(SOURCE / "packaging/fetch-aarch64", self.folder / "mine")
        self.assertEqual(1, done.returncode)
        self.assertIn("mine exists and was not made by this script", done.stderr)

    def test_other_machines_are_refused(self):
        for script in "build-wheel", "fetch-libtorch", "make-packages":
            done = run(SOURCE / "packaging" / script, "--machine", "ppc64le")
            self.assertEqual((64, f"{script}: --machine is aarch64, not ppc64le\n"), (done.returncode, done.stderr))

    def test_wheel_has_an_agent_for_each_machine(self):
        agents = [self.agent(name, number) for name, number in MACHINES.items()]
        done, wheel = self.make_wheel(*agents)
        self.assertEqual(0, done.returncode, done.stderr)
        first = wheel.read_bytes()
        self.make_wheel(*reversed(agents))
        self.assertEqual(first, wheel.read_bytes())
        version = re.search(r"project\(dslaunch VERSION ([\d.]+)", (SOURCE / "CMakeLists.txt").read_text())[1]
        self.assertEqual(wheel.name, f"dslaunch_agents-{version}-py3-none-any.whl")
        with zipfile.ZipFile(wheel) as archive:
            for name in MACHINES:
                entry = archive.getinfo(f"dslaunch_agents-{version}.data/data/lib/dslaunch/dslaunch-agent-{name}")
                self.assertEqual(0o755, entry.external_attr >> 16 & 0o777)
                self.assertTrue(archive.read(entry).endswith(name.encode()))
            self.assertIn(f"Requires-Dist: dslaunch=={version}", archive.read(f"dslaunch_agents-{version}.dist-info/METADATA").decode())
        # pip's extra must have the same version.
        self.assertIn(f'agents = ["dslaunch-agents=={version}"]', (SOURCE / "pyproject.toml").read_text())

    def test_wheel_refuses_other_files(self):
        for agents in ([self.agent("s390x", 22)], [self.agent("program", 62, mark=b"")], ["/dev/null"],
                       [self.agent("one", 62), self.agent("two", 62)], []):
            done, wheel = self.make_wheel(*agents)
            self.assertNotEqual(0, done.returncode)
            self.assertIsNone(wheel)


if __name__ == "__main__":
    unittest.main()
