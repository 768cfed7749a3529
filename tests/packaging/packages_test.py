"""Tests CPack's packages of a build: they contain the right files, run where they are unpacked, and are
reproducible."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["DSLAUNCH_BUILD_DIR"])
SOURCE = pathlib.Path(__file__).resolve().parents[2]
HAS = {"DEB": shutil.which("dpkg-deb"), "RPM": shutil.which("rpmbuild")}


def output(*command, **options):
    ended = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=400,
                           **options)
    if ended.returncode != 0:
        raise AssertionError(f"{command}: exit code {ended.returncode}\n{ended.stdout}{ended.stderr}")
    return ended.stdout


class PackagesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="dslaunch-packages-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)

    def pack(self, generator, folder="packages"):
        """Returns {name: path} for the packages, which are made once per folder, with fast compression."""
        where = self.folder / folder / generator
        if not where.exists():
            output("cpack", "--config", BUILD / "CPackConfig.cmake", "-G", generator, "-B", where, "-D",
                   "CPACK_DEBIAN_COMPRESSION_TYPE=gzip", "-D", "CPACK_RPM_COMPRESSION_TYPE=gzip",
                   env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"})
        ending = "." + {"DEB": "deb", "RPM": "rpm", "TGZ": "tar.gz"}[generator]
        return {path.name: path for path in where.iterdir() if path.name.endswith(ending)}

    def runs(self, root):
        """Checks that the launcher below `root` starts a job with its own agent."""
        program = root / "bin" / "dslaunch"
        self.assertRegex(output(program, "--version"), r"^dslaunch [\d.]+\n")
        said = output(program, "--launcher", "local", "--num_nodes", "2", "--num_gpus", "1", "--show", "all", "sh", "-c", "echo rank $RANK",
                      env={"PATH": os.environ["PATH"], "XDG_STATE_HOME": str(self.folder / "state"), "HOME": str(self.folder)})
        self.assertIn("rank 1", said)

    def test_debs_contain_each_file_once_and_run(self):
        if not HAS["DEB"]:
            self.skipTest("no dpkg-deb")
        packages = self.pack("DEB")
        self.assertEqual({"dslaunch", "dslaunch-trainer", "dslaunch-dev"}, {name.split("_")[0] for name in packages})
        root = self.folder / "debian"
        seen = {}
        for name, path in packages.items():
            package = name.split("_")[0]
            self.assertRegex(output("dpkg-deb", "--field", path, "Depends"), r"libc6 \(>= 2\.28\)|dslaunch-trainer \(=")
            listing = output("dpkg-deb", "--contents", path)
            for line in listing.splitlines():
                mode, owner, _, _, _, file, *link = line.split()
                self.assertEqual("root/root", owner, line)
                self.assertRegex(file, r"^\./(usr/.*)?$", line)
                self.assertFalse(link, f"a link to this machine: {line}")
                self.assertNotRegex(mode, "^.....w|^........w", line)
                if not file.endswith("/"):
                    self.assertNotIn(file, seen, f"{package} and {seen.get(file)} have it")
                    seen[file] = package
            output("dpkg-deb", "--extract", path, root)
            for file in "copyright", "changelog.gz":
                self.assertTrue((root / "usr/share/doc" / package / file).exists(), file)
        owner = {"./usr/bin/dslaunch": "dslaunch", "./usr/bin/dslaunch-agent": "dslaunch", "./usr/share/man/man1/dslaunch.1.gz": "dslaunch",
                 "./usr/share/bash-completion/completions/dslaunch": "dslaunch", "./usr/bin/dslaunch-train": "dslaunch-trainer",
                 "./usr/share/dslaunch/recipes/fashion_mnist.yaml": "dslaunch-trainer",
                 "./usr/lib/cmake/dslaunch/dslaunchConfig.cmake": "dslaunch-dev", "./usr/include/dslaunch/engine.h": "dslaunch-dev"}
        for file, package in owner.items():
            self.assertEqual(package, seen.get(file), file)
        self.runs(root / "usr")
        # Without LibTorch, training fails with a message before anything starts.
        ended = subprocess.run([root / "usr/bin/dslaunch", "--launcher", "local", "--num_gpus", "1", "train"], capture_output=True,
                               text=True, timeout=60)
        self.assertEqual(69, ended.returncode, ended.stderr)
        self.assertRegex(ended.stderr, r"no LibTorch 2\.11 beside dslaunch-train; .*pip install 'dslaunch\[train\]'")

    def test_two_rpms_of_one_build_are_equal(self):
        if not HAS["RPM"]:
            self.skipTest("no rpmbuild")
        one, other = self.pack("RPM"), self.pack("RPM", "other")
        self.assertEqual({name: path.read_bytes() == other[name].read_bytes() for name, path in one.items()},
                         dict.fromkeys(one, True))

    def test_two_debs_of_one_build_are_equal(self):
        if not HAS["DEB"]:
            self.skipTest("no dpkg-deb")
        one, other = self.pack("DEB"), self.pack("DEB", "other")
        self.assertEqual({name: path.read_bytes() == other[name].read_bytes() for name, path in one.items()},
                         dict.fromkeys(one, True))

    def test_debs_pass_lintian(self):
        if not HAS["DEB"] or not shutil.which("lintian"):
            self.skipTest("no lintian")
        output("lintian", "--allow-root", "--fail-on", "error,warning", *self.pack("DEB").values())

    def test_rpms_pass_rpmlint(self):
        if not HAS["RPM"] or not shutil.which("rpmlint"):
            self.skipTest("no rpmlint")
        output("rpmlint", "--config", SOURCE / "packaging/rpmlint.toml", "--strict", *self.pack("RPM").values())

    def test_tarball_runs_where_it_is_unpacked(self):
        (name, path), = self.pack("TGZ").items()
        self.assertRegex(name, r"^dslaunch-[\d.]+-Linux\.tar\.gz$")
        output("tar", "-C", self.folder, "-xzf", path)
        self.runs(self.folder / name.removesuffix(".tar.gz"))

    def test_rpms_have_the_agent_and_need_glibc_2_28(self):
        if not HAS["RPM"]:
            self.skipTest("no rpmbuild")
        packages = self.pack("RPM")
        self.assertEqual({"dslaunch", "dslaunch-trainer", "dslaunch-devel"},
                         {re.sub(r"-\d.*", "", name) for name in packages})
        path, = [path for name, path in packages.items() if re.match(r"dslaunch-\d", name)]
        self.assertIn("/usr/bin/dslaunch-agent", output("rpm", "--query", "--list", "--package", path).splitlines())
        self.assertIn("glibc >= 2.28", output("rpm", "--query", "--requires", "--package", path))

    def stub_rpms(self, glibc):
        """Returns packages without files, which have RHEL's names for the packages that dslaunch needs."""
        versions = {"glibc": glibc, "libstdc++": "8.5.0", "libgcc": "8.5.0", "zlib-devel": "1.2.11", "libpng-devel": "1.6.34",
                    "libjpeg-turbo-devel": "1.5.3"}
        folder = self.folder / f"stubs-{glibc}"
        for name, version in versions.items():
            spec = folder / f"{name}.spec"
            folder.mkdir(exist_ok=True)
            spec.write_text(f"Name: {name}\nVersion: {version}\nRelease: 1\nSummary: stub\nLicense: none\nBuildArch: noarch\n"
                            "%description\nstub\n%files\n")
            output("rpmbuild", "-bb", "--define", f"_topdir {folder}", spec)
        return list(folder.glob("RPMS/noarch/*.rpm"))

    def rpm(self, root, *words):
        """Runs rpm for a root, as root of a user namespace."""
        root.mkdir(exist_ok=True)
        return subprocess.run(["unshare", "--user", "--map-root-user", "rpm", "--root", root, *words], capture_output=True, text=True,
                              timeout=200, check=False)

    def test_rpms_install_with_glibc_2_28_and_uninstall(self):
        if not HAS["RPM"]:
            self.skipTest("no rpmbuild")
        packages = list(self.pack("RPM").values())
        for glibc, refusal in (("2.17", r"glibc >= 2\.28 is needed by dslaunch"), ("2.28", "")):
            root = self.folder / f"root-{glibc}"
            stubs = self.rpm(root, "--install", *self.stub_rpms(glibc))
            self.assertEqual(0, stubs.returncode, stubs.stderr)
            before = set(root.rglob("*"))
            done = self.rpm(root, "--install", *packages)
            self.assertEqual(refusal == "", done.returncode == 0, done.stderr)
            self.assertTrue(re.search(refusal, done.stderr), done.stderr)
        self.runs(root / "usr")
        names = self.rpm(root, "--query", "--all", "dslaunch*").stdout.split()
        self.assertEqual(3, len(names))
        done = self.rpm(root, "--erase", *names)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual(set(), {path for path in root.rglob("*") if not path.is_dir()} - before)


if __name__ == "__main__":
    unittest.main()
