#include "cli/per_node/per_node_token.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <set>
#include <string_view>

#include "base/errno_text.h"
#include "base/os/ownership.h"
#include "base/os/random_bytes.h"
#include "base/text/hex.h"
#include "base/text/sanitize.h"
#include "base/unique_fd.h"

namespace dslaunch {
namespace {

Error Bad(const std::string& what) { return Error{ExitCode::kBadInput, what}; }

Result<UniqueFd> OpenTokenFile(const std::string& file) {
  UniqueFd fd(open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!fd || fstat(fd.get(), &status) != 0) {
    return Bad("--rdzv_token_file " + Truncate(file) + ": " + std::strerror(errno) +
               "; make one with: " + kMakeToken);
  }
  if (!S_ISREG(status.st_mode))
    return Bad("--rdzv_token_file " + Truncate(file) + ": it is not a file");
  if ((status.st_mode & 077) != 0) {
    return Bad("--rdzv_token_file " + Truncate(file) +
               ": other users may read it, so it is not secret; chmod 600 it");
  }
  return fd;
}

Result<UniqueFd> OpenTokenDescriptor(std::string_view text) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number <= STDERR_FILENO ||
      fcntl(number, F_GETFD) < 0) {
    return Bad(std::string(kTokenFdVariable) + ": no open descriptor above 2 has that number");
  }
  return UniqueFd(number);
}

// Least number of different characters in a token. A random token of 32 hex digits has fewer
// different digits only once in ten million times.
constexpr size_t kMinDistinct = 8;

// Returns whether the token consists of repetitions of a shorter text.
bool RepeatsItself(std::string_view token) {
  for (size_t period = 1; period <= token.size() / 2; ++period) {
    if (token.substr(period) == token.substr(0, token.size() - period)) return true;
  }
  return false;
}

}  // namespace

Result<std::optional<std::string>> ReadToken(const std::optional<std::string>& file,
                                             const char* fd_variable) {
  if (!file && fd_variable == nullptr) return std::optional<std::string>();
  const std::string where =
      file ? "--rdzv_token_file " + Truncate(*file) : std::string(kTokenFdVariable);
  DSL_TRY_ASSIGN(const UniqueFd fd, file ? OpenTokenFile(*file) : OpenTokenDescriptor(fd_variable));
  std::string token(kMaxTokenBytes + 1, '\0');
  size_t size = 0;
  while (size < token.size()) {
    const ssize_t n = read(fd.get(), token.data() + size, token.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Bad(where + ": " + std::strerror(errno));
    if (n == 0) break;
    size += static_cast<size_t>(n);
  }
  token.resize(size);
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
  if (token.size() < kMinTokenBytes || token.size() > kMaxTokenBytes) {
    return Bad(where + ": a token has " + std::to_string(kMinTokenBytes) + " to " +
               std::to_string(kMaxTokenBytes) + " characters, this one " +
               (token.size() > kMaxTokenBytes ? "more" : std::to_string(token.size())) +
               "; make one with: " + kMakeToken);
  }
  if (std::set<char>(token.begin(), token.end()).size() < kMinDistinct || RepeatsItself(token)) {
    return Bad(where + ": the token is not random enough, it could be guessed; make one with: " +
               kMakeToken);
  }
  return std::optional(std::move(token));
}

Result<std::string> ShareToken(const std::string& folder, const std::string& name) {
  std::string path = folder + "/" + name;
  const auto fail = [&](int error_number) {
    return Error{ExitCode::kIo,
                 "cannot make " + Truncate(path) + ": " + ErrnoText(error_number) +
                     "; set XDG_STATE_HOME to a folder of yours that all nodes share"};
  };
  DSL_TRY_ASSIGN(const UniqueFd place, OpenOwnFolder(folder, ::geteuid(), IfMissing::kMake));
  std::array<char, kMinTokenBytes> bits;
  if (!FillRandom(bits)) return fail(errno);
  std::string token = ToHex({bits.data(), bits.size()});
  // The file is complete before it gets its name. link(2) is atomic on network file systems, so
  // only one command can create the name.
  const std::string unnamed = name + "." + token.substr(0, 16);
  const UniqueFd file(
      ::openat(place.get(), unnamed.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file) return fail(errno);
  token = token.substr(16) + "\n";
  const bool is_written =
      ::write(file.get(), token.data(), token.size()) == static_cast<ssize_t>(token.size()) &&
      ::fsync(file.get()) == 0;
  const int error_number = errno;
  const bool is_there =
      is_written && (::linkat(place.get(), unnamed.c_str(), place.get(), name.c_str(), 0) == 0 ||
                     errno == EEXIST);
  const int link_error = errno;
  ::unlinkat(place.get(), unnamed.c_str(), 0);
  if (!is_there) return fail(is_written ? link_error : error_number);
  return path;
}

}  // namespace dslaunch
