#include "base/os/own_cgroup.h"

#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/os/proc_text.h"

namespace dslaunch {
namespace {

Error NoCgroup(std::string why) { return {ExitCode::kUnavailable, std::move(why)}; }

// Returns `text` with the escape sequences \ooo replaced, by which mountinfo writes blanks and
// backslashes in paths.
std::string Unescape(std::string_view text) {
  std::string plain;
  while (!text.empty()) {
    uint8_t byte = 0;
    if (text.size() >= 4 && text[0] == '\\' &&
        std::from_chars(text.data() + 1, text.data() + 4, byte, 8).ptr == text.data() + 4) {
      plain.push_back(static_cast<char>(byte));
      text.remove_prefix(4);
    } else {
      plain.push_back(text[0]);
      text.remove_prefix(1);
    }
  }
  return plain;
}

// A mount of cgroup v2: the part of the hierarchy that the mount shows, and the mount's folder.
struct Mount {
  std::string root;
  std::string folder;
};

// Returns the mount in a line of mountinfo, "id parent device root folder options... - type source
// options". Returns nullopt unless the type is cgroup2.
std::optional<Mount> ParseCgroup2Mount(std::string_view line) {
  std::array<std::string_view, 5> fields;
  std::string_view rest = line;
  for (std::string_view& field : fields) field = TakeWord(rest);
  while (!rest.empty() && TakeWord(rest) != "-") {
  }
  if (TakeWord(rest) != "cgroup2") return std::nullopt;
  return Mount{Unescape(fields[3]), Unescape(fields[4])};
}

}  // namespace

Result<std::string> FindOwnCgroup(std::string_view mountinfo, std::string_view cgroups) {
  std::optional<Mount> mount;
  while (!mount && !mountinfo.empty()) mount = ParseCgroup2Mount(TakeLine(mountinfo));
  if (!mount) return NoCgroup("cgroup v2 is not mounted here");
  // In /proc/PID/cgroup, the line of cgroup v2 has the number 0 and no controllers, so it begins
  // with "0::".
  constexpr std::string_view kVersion2 = "0::";
  std::string_view line;
  while (!line.starts_with(kVersion2)) {
    if (cgroups.empty()) return NoCgroup("this process is in no cgroup v2");
    line = TakeLine(cgroups);
  }
  std::string_view path = line.substr(kVersion2.size());
  // In a cgroup namespace, the path of a cgroup outside of the namespace begins with "..", so such
  // a cgroup cannot be reached.
  if (!path.starts_with('/') || path.starts_with("/..") || mount->root.starts_with("/..")) {
    return NoCgroup("this process' cgroup " + std::string(path) + " lies outside its namespace");
  }
  if (mount->root != "/") {
    const std::string_view root = mount->root;
    if (!path.starts_with(root) || (path.size() > root.size() && path[root.size()] != '/')) {
      return NoCgroup("the mount " + mount->folder + " does not show this process' cgroup " +
                      std::string(path));
    }
    path.remove_prefix(root.size());
  }
  return path == "/" ? mount->folder : mount->folder + std::string(path);
}

Result<std::string> OwnCgroup() {
  const std::optional<std::string> mountinfo = ReadWhole("/proc/self/mountinfo");
  const std::optional<std::string> cgroups = ReadWhole("/proc/self/cgroup");
  if (!mountinfo || !cgroups) return NoCgroup("/proc has no information about cgroups");
  return FindOwnCgroup(*mountinfo, *cgroups);
}

std::vector<std::string> OwnCgroupsUpwards() {
  const Result<std::string> own = OwnCgroup();
  std::vector<std::string> folders;
  if (!own.ok()) return folders;
  for (std::filesystem::path folder = *own; access((folder / "cgroup.procs").c_str(), F_OK) == 0;
       folder = folder.parent_path()) {
    folders.push_back(folder.string());
  }
  return folders;
}

}  // namespace dslaunch
