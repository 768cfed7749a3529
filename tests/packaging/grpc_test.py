"""Tests gRPC from archives (Debian, Ubuntu), from its CMake package, and from pkg-config (Fedora and others)."""

import os
import subprocess
import tempfile
import unittest

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def checked(*command):
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    if ended.returncode != 0:
        raise AssertionError("%s: exit code %d\n%s%s" % (command, ended.returncode, ended.stdout, ended.stderr))
    return ended.stdout


class GrpcTest(unittest.TestCase):
    def build(self, *options):
        """Builds and runs a program. Returns the configuration's output and the program's libraries."""
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="dslaunch-grpc-"))
        said = checked("cmake", "-S", SOURCE + "/tests/packaging/grpc", "-B", folder, "-G", "Ninja",
                       "-DDSLAUNCH_MODULES=" + SOURCE + "/packaging/cmake", *options)
        checked("cmake", "--build", folder)
        self.assertRegex(checked(folder + "/grpc_program"), r"^gRPC \d+\.0\.0: ok\n$")
        return said, checked("readelf", "-d", folder + "/grpc_program")

    def test_prefers_archives_of_the_system(self):
        said, libraries = self.build()
        self.assertNotIn("every node then needs", said)
        self.assertNotIn("libgrpc", libraries)
        self.assertNotIn("libprotobuf", libraries)

    def test_finds_the_cmake_package(self):
        said, libraries = self.build("-DDSLAUNCH_STATIC=OFF")
        self.assertIn("which every node then needs too", said)
        self.assertIn("libgrpc++.so", libraries)

    def test_finds_pkg_config(self):
        _, libraries = self.build("-DDSLAUNCH_STATIC=OFF", "-DCMAKE_DISABLE_FIND_PACKAGE_gRPC=ON")
        self.assertIn("libgrpc++.so", libraries)

    def test_refuses_missing_archives_if_required(self):
        refusal = "DSLAUNCH_STATIC is ON, but this system has no libupb.a".replace(" ", r"\s+")
        with self.assertRaisesRegex(AssertionError, refusal):
            self.build("-DDSLAUNCH_STATIC=ON", "-DDSLAUNCH_A_upb=")


if __name__ == "__main__":
    unittest.main()
