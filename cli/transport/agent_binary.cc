#include "cli/transport/agent_binary.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/digest/sha256.h"
#include "base/os/build_id.h"
#include "base/text/hex.h"
#include "base/text/sanitize.h"
#include "base/unique_fd.h"

namespace dslaunch {

Result<AgentBinary> ReadAgentBinary(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return Error{ExitCode::kNotFound,
                 "no agent at " + Truncate(path) +
                     "; dslaunch-agent must lie in the same folder as dslaunch: "
                     "install or build both"};
  }
  if (::access(path.c_str(), X_OK) != 0) {
    return Error{ExitCode::kCannotExecute, Truncate(path) + " is not executable; chmod +x it"};
  }
  DSL_TRY_ASSIGN(ElfIdentity identity, ReadElfIdentity(path));
  return AgentBinary{path, identity.build_id, identity.machine,
                     static_cast<uint64_t>(status.st_size)};
}

Result<AgentBinary> FindAgentBinary() {
  std::error_code error;
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    return Error{ExitCode::kInternal,
                 "cannot read /proc/self/exe: " + error.message() + "; is /proc mounted?"};
  }
  return ReadAgentBinary((own.parent_path() / "dslaunch-agent").string());
}

Result<std::string> Sha256OfFile(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd)
    return Error{ExitCode::kIo, "cannot open " + Truncate(path) + ": " + std::strerror(errno)};
  Sha256 sum;
  const Result<uint64_t> read = AddFromFile(fd.get(), UINT64_MAX, sum);
  if (!read.ok())
    return Error{ExitCode::kIo, "cannot read " + Truncate(path) + ": " + read.error().message};
  return ToHex(sum.Finish());
}

}  // namespace dslaunch
