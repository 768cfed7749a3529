#include "cli/transport/agent_binary.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/build_id.h"
#include "base/sanitize.h"
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
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        &EVP_MD_CTX_free);
  EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr);
  std::vector<char> chunk(256 * 1024);
  while (true) {
    const ssize_t n = ::read(fd.get(), chunk.data(), chunk.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      return Error{ExitCode::kIo, "cannot read " + Truncate(path) + ": " + std::strerror(errno)};
    if (n == 0) break;
    EVP_DigestUpdate(context.get(), chunk.data(), static_cast<size_t>(n));
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_DigestFinal_ex(context.get(), digest, &size);
  std::string hex;
  for (unsigned i = 0; i < size; ++i) {
    char pair[3];
    std::snprintf(pair, sizeof pair, "%02x", digest[i]);
    hex += pair;
  }
  return hex;
}

}  // namespace dslaunch
