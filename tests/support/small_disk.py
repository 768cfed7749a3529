"""Provides a file system that can be filled, and frozen like a file server that hangs."""

import contextlib
import os
import pathlib
import subprocess
import tempfile

SIZE_MB = 32


class SmallDisk:
    """An ext4 file system of 32 MB in a file, mounted at `path`. Needs root and loop devices; raises OSError without
    them. Only hosts that are created after the mount can access it."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="dslaunch-disk-")
        os.chmod(self._folder.name, 0o755)
        image = pathlib.Path(self._folder.name) / "image"
        self.path = pathlib.Path(self._folder.name) / "disk"
        self.path.mkdir()
        with open(image, "wb") as file:
            file.truncate(SIZE_MB << 20)
        try:
            self._run("mkfs.ext4", "-q", str(image))
            self._run("mount", "-o", "loop", str(image), str(self.path))
        except OSError:
            self._folder.cleanup()
            raise
        os.chmod(self.path, 0o1777)

    def freeze(self):
        """Freezes the file system: a process that writes to it blocks until thaw() and cannot be killed meanwhile."""
        self._run("fsfreeze", "--freeze", str(self.path))

    def thaw(self):
        self._run("fsfreeze", "--unfreeze", str(self.path))

    def fill(self):
        with contextlib.suppress(OSError), open(self.path / "filler", "wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 20))

    def empty(self):
        for path in self.path.iterdir():
            if path.name != "lost+found":
                subprocess.run(["rm", "-rf", str(path)], check=True)

    def close(self):
        self._run("umount", "--lazy", str(self.path))  # lazy, because processes on the hosts may have files open there
        self._folder.cleanup()

    @staticmethod
    def _run(*argv):
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise OSError(f"{' '.join(argv)}: {done.stderr.strip()}")
