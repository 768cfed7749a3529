#include "agent/host/program_machine.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "agent/host/interpreter.h"
#include "base/os/brief_run.h"
#include "base/os/build_id.h"
#include "base/os/proc_text.h"
#include "base/unique_fd.h"

namespace dslaunch {
namespace {

constexpr milliseconds kAnswersWithin(5'000);

// Returns whether the kernel cannot run a file with this beginning. Tests that by executing a file
// that has only this beginning, so that no program can actually run.
bool IsRefusedByKernel(std::string_view head) {
  const UniqueFd file(::memfd_create("program", MFD_CLOEXEC));
  if (!file || ::write(file.get(), head.data(), head.size()) != static_cast<ssize_t>(head.size()))
    return false;
  const std::string path =
      "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(file.get());
  const BriefRun run = RunBriefly({path}, {}, Deadline::After(kAnswersWithin));
  return run.end == BriefRun::End::kNotStarted && run.number == ENOEXEC;
}

}  // namespace

bool IsOwnMachine(std::string_view program, std::string_view own) {
  if (program.empty() || own.empty() || program == own) return true;
  return (own == "x86_64" && program == "i686") || (own == "aarch64" && program == "armv7l");
}

Result<void> CheckMachine(const std::string& path, const std::string& name,
                          const std::string& node) {
  std::string file = path;
  std::string head = ReadBeginning(file, kMaxInterpreterHead);
  if (const std::optional<Interpreter> interpreter = ReadInterpreter(head);
      interpreter && !interpreter->is_loader && interpreter->path.starts_with('/')) {
    file = interpreter->path;
    head = ReadBeginning(file, kMaxInterpreterHead);
  }
  const std::string machine = ElfMachine(head);
  const std::string own = ElfMachine(ReadBeginning("/proc/self/exe", kElfMachineHead));
  if (IsOwnMachine(machine, own) || !IsRefusedByKernel(head)) return {};
  return Error{ExitCode::kCannotExecute,
               node + ": program '" + name +
                   "' cannot be started: " + (file == path ? "it" : "its interpreter " + file) +
                   " was built for " + machine + ", and the node is of type " + own +
                   "; give the path of one that was built for " + own +
                   ", which may have the same name on each node, or leave the node out "
                   "(--exclude)"};
}

}  // namespace dslaunch
