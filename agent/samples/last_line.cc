#include "agent/samples/last_line.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <tuple>

#include "base/unique_fd.h"

namespace dslaunch {
namespace {

constexpr off_t kReadBytes = 4096;
constexpr size_t kShownBytes = 200;

bool IsNewer(const struct stat& a, const struct stat& b) {
  return std::tie(a.st_mtim.tv_sec, a.st_mtim.tv_nsec) >
         std::tie(b.st_mtim.tv_sec, b.st_mtim.tv_nsec);
}

}  // namespace

std::string LastLineOf(std::string_view text) {
  while (!text.empty()) {
    const size_t last = text.find_last_not_of("\r\n");
    if (last == std::string_view::npos) return "";
    text = text.substr(0, last + 1);
    const size_t begin = text.find_last_of("\r\n") + 1;  // 0 if no line ending precedes the line
    const std::string_view line = text.substr(begin);
    if (line.find_first_not_of(" \t") != std::string_view::npos)
      return std::string(line.substr(0, kShownBytes));
    text = text.substr(0, begin);
  }
  return "";
}

std::string ReadLastLine(const std::string& folder) {
  const std::string out_path = folder + "/stdout.log", err_path = folder + "/stderr.log";
  struct stat out = {}, err = {};
  const bool has_out = ::stat(out_path.c_str(), &out) == 0 && out.st_size > 0;
  const bool has_err = ::stat(err_path.c_str(), &err) == 0 && err.st_size > 0;
  if (!has_out && !has_err) return "";
  const bool is_err = has_err && (!has_out || IsNewer(err, out));
  const UniqueFd file(
      ::open((is_err ? err_path : out_path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::string text(kReadBytes, '\0');
  const off_t size = is_err ? err.st_size : out.st_size;
  const ssize_t count =
      file ? ::pread(file.get(), text.data(), text.size(), std::max<off_t>(0, size - kReadBytes))
           : 0;
  return LastLineOf(
      std::string_view(text).substr(0, static_cast<size_t>(std::max<ssize_t>(count, 0))));
}

}  // namespace dslaunch
