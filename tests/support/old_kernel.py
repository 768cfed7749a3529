"""Runs a program as on Linux 4.18: newer system calls fail with ENOSYS, also in its child processes.

  python3 old_kernel.py PROGRAM ARGUMENT...
"""

import ctypes
import errno
import os
import struct
import sys

FIRST_NEWER = 424  # pidfd_send_signal of Linux 5.1; later calls have the same number on all architectures
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 22, 38
SECCOMP_MODE_FILTER = 2
SECCOMP_RET_ERRNO, SECCOMP_RET_ALLOW = 0x00050000, 0x7FFF0000
LOAD, JUMP_IF_AT_LEAST, RETURN = 0x20, 0x35, 0x06


def main():
    instructions = [(LOAD, 0, 0, 0),  # loads the number of the system call
                    (JUMP_IF_AT_LEAST, 0, 1, FIRST_NEWER),
                    (RETURN, 0, 0, SECCOMP_RET_ERRNO | errno.ENOSYS),
                    (RETURN, 0, 0, SECCOMP_RET_ALLOW)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in instructions))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(instructions), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0):
        sys.exit("old_kernel: " + os.strerror(ctypes.get_errno()))
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
