#include "base/os/put_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "base/text/sanitize.h"
#include "base/unique_fd.h"

namespace dslaunch {
namespace {

Error CannotWrite(const std::string& path, int error_number) {
  return {ExitCode::kIo, "cannot write " + Truncate(path) + ": " + std::strerror(error_number)};
}

}  // namespace

Error FileInTheWay(const std::string& path) {
  return {ExitCode::kUsage, Truncate(path) + " exists and was not changed; --force overwrites it"};
}

Result<void> PutFile(const std::string& path, const std::string& text, bool overwrite) {
  const std::string temporary = path + "." + std::to_string(::getpid());
  const UniqueFd file(
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!file) return CannotWrite(errno == EEXIST ? temporary : path, errno);
  const auto give_up = [&](int error_number) {
    ::unlink(temporary.c_str());
    return error_number == EEXIST ? FileInTheWay(path) : CannotWrite(path, error_number);
  };
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t written = ::write(file.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return give_up(errno);
    rest.remove_prefix(static_cast<size_t>(written));
  }
  if (::fsync(file.get()) != 0) return give_up(errno);
  if (overwrite) {
    if (::rename(temporary.c_str(), path.c_str()) != 0) return give_up(errno);
    return {};
  }
  // rename() would overwrite a file that was created in the meantime, so link() is used, which
  // fails.
  if (::link(temporary.c_str(), path.c_str()) != 0) return give_up(errno);
  ::unlink(temporary.c_str());
  return {};
}

}  // namespace dslaunch
