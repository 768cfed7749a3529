"""Makes a program slow to start, as on a cold network file system: the kernel asks this process for permission
before each execve."""

import ctypes
import os
import struct
import threading

CLASS_CONTENT, CLOEXEC, MARK_ADD, OPEN_EXEC_PERM, ALLOW = 4, 1, 1, 0x40000, 1
AT_FDCWD = -100
EVENT = struct.Struct("=IBBHQii")  # fanotify_event_metadata: size, two versions, own size, mask, descriptor, pid


class SlowExec:
    """Delays each execve of `path`, in any namespace, by `seconds`, until closed. Needs root."""

    def __init__(self, path, seconds):
        self._seconds = seconds
        libc = ctypes.CDLL(None, use_errno=True)
        self._events = libc.fanotify_init(CLASS_CONTENT | CLOEXEC, os.O_RDONLY)
        if self._events < 0 or libc.fanotify_mark(self._events, MARK_ADD, ctypes.c_uint64(OPEN_EXEC_PERM), AT_FDCWD,
                                                  os.fsencode(path)) != 0:
            raise OSError(ctypes.get_errno(), f"fanotify: {os.strerror(ctypes.get_errno())}")
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self):
        """Ends the delay; an execve that is still waiting continues."""
        events, self._events = self._events, -1
        if events >= 0:
            os.close(events)

    def _serve(self):
        while (events := self._events) >= 0:
            try:
                data = os.read(events, 4096)
            except OSError:
                return
            while data:
                size, _, _, _, _, descriptor, _ = EVENT.unpack_from(data)
                threading.Timer(self._seconds, self._allow, [events, descriptor]).start()
                data = data[size:]

    def _allow(self, events, descriptor):
        if self._events == events:
            os.write(events, struct.pack("=iI", descriptor, ALLOW))
        os.close(descriptor)
