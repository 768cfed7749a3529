#include "cli/transport/agent_digest.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/os/ownership.h"
#include "base/os/put_file.h"
#include "base/text/hex.h"
#include "cli/transport/agent_binary.h"
#include "proto/contract/job_paths.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxBytes = 1024;
constexpr size_t kDigits = 64;

// Returns the file's device, inode, size and times as text. At least one of them changes when the
// file changes. Returns an empty string if the file cannot be read.
std::string IdentityOf(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return "";
  std::string identity;
  for (const auto number :
       {static_cast<long long>(status.st_dev), static_cast<long long>(status.st_ino),
        static_cast<long long>(status.st_size), static_cast<long long>(status.st_mtim.tv_sec),
        static_cast<long long>(status.st_mtim.tv_nsec),
        static_cast<long long>(status.st_ctim.tv_sec),
        static_cast<long long>(status.st_ctim.tv_nsec)})
    identity += std::to_string(number) + " ";
  return identity;
}

// Returns the cached digest; empty if the cache has no digest of this version of the file.
std::string Kept(const UniqueFd& folder, const std::filesystem::path& path,
                 const std::string& identity) {
  const Result<UniqueFd> file = OpenOwnFile(folder, path.filename(), path, ::geteuid());
  if (!file.ok() || !*file) return "";
  const Result<std::string> text = ReadAll(*file, path, kMaxBytes);
  if (!text.ok() || !text->starts_with(identity)) return "";
  const std::string digest = text->substr(identity.size());
  return digest.size() == kDigits && IsHex(digest) ? digest : "";
}

}  // namespace

Result<std::string> AgentDigest(const std::string& path, const std::string& cache_folder) {
  const std::string identity = IdentityOf(path);
  if (identity.empty() || cache_folder.empty()) return Sha256OfFile(path);
  const Result<UniqueFd> folder = OpenOwnFolder(cache_folder, ::geteuid(), IfMissing::kMake);
  if (!folder.ok()) return Sha256OfFile(path);
  const std::string file =
      cache_folder + "/" + std::filesystem::path(path).filename().string() + ".sha256";
  if (std::string digest = Kept(*folder, file, identity); !digest.empty()) return digest;
  Result<std::string> digest = Sha256OfFile(path);
  // If the file was replaced during hashing, the digest may mix both versions, so it is not cached.
  if (digest.ok() && IdentityOf(path) == identity)
    (void)PutFile(file, identity + *digest, /*overwrite=*/true);
  return digest;
}

std::string OwnCacheFolder() {
  return CacheFolder(std::getenv("XDG_CACHE_HOME"), std::getenv("HOME"));
}

}  // namespace dslaunch
