// Lists the meanings of the exit codes in base/exit_code.h, for the man page and docs/reference.
#pragma once

namespace dslaunch {

struct ExitCodeMeaning {
  const char* code;
  const char* meaning;  // meaning without a full stop
};

inline constexpr ExitCodeMeaning kExitCodeMeanings[] = {
    {"0", "every rank exited with 0, and no process is left on any node"},
    {"64", "the command line is wrong"},
    {"65", "an input file is wrong"},
    {"69", "a node cannot be reached, or was lost"},
    {"70", "a bug in dslaunch"},
    {"74", "files cannot be written: the disk is full, or no permission"},
    {"75", "something did not end in time"},
    {"77", "a host key or a login was refused"},
    {"85", "the trainer stopped early on request, after a checkpoint; start it again to continue"},
    {"126", "the program cannot be executed"},
    {"127", "the program does not exist"},
    {"129", "the terminal went away (SIGHUP)"},
    {"130", "interrupted (Ctrl-C)"},
    {"143", "terminated (SIGTERM)"},
    {"others",
     "the exit code of the rank that failed first; 128 plus the signal's number if a signal ended "
     "it"},
};

}  // namespace dslaunch
