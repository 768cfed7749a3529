#include "cli/plan/plan_info.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "agent/accelerators/node_accelerators.h"
#include "agent/accelerators/visible_devices.h"
#include "base/errno_text.h"
#include "base/os/ownership.h"
#include "base/os/usable_cores.h"
#include "base/text/sanitize.h"
#include "base/unique_fd.h"

namespace dslaunch {
namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

Result<std::string> ReadNodeFile(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return Error{ExitCode::kIo, Truncate(path) + ": " + ErrnoText(errno)};
  return ReadAll(file, path, kMaxHostfileBytes);
}

// Adds the addresses of this machine, because a hostfile may name this machine by an address.
void AddOwnAddresses(std::vector<std::string>& names) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    const bool is_v6 = one->ifa_addr->sa_family == AF_INET6;
    if (!is_v6 && one->ifa_addr->sa_family != AF_INET) continue;
    std::array<char, INET6_ADDRSTRLEN> text{};
    const void* const address =
        is_v6 ? static_cast<const void*>(
                    &reinterpret_cast<const sockaddr_in6*>(one->ifa_addr)->sin6_addr)
              : &reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr;
    if (::inet_ntop(one->ifa_addr->sa_family, address, text.data(), text.size()) != nullptr)
      names.emplace_back(text.data());
  }
  ::freeifaddrs(all);
}

}  // namespace

PlanInfo ReadPlanInfo(pb::Device device, bool only_cuda, bool each_alone) {
  PlanInfo info;
  info.default_hostfile_exists = ::access(kDefaultHostfile, F_OK) == 0;
  const auto getenv = [](const char* name) -> const char* { return std::getenv(name); };
  const Result<NodeAccelerators> found = FindAccelerators(device, only_cuda, getenv, each_alone);
  if (found.ok()) {
    info.accelerator = found->row;
    info.local_gpus = static_cast<int>(found->visible.size());
    info.installed_gpus = static_cast<int>(found->numbered.size());
    info.device_limits = LimitsOn(*found->row, getenv);
  } else {
    info.gpu_trouble = found.error().message;
  }
  info.cores = UsableCores();
  info.own_names = {"localhost", "127.0.0.1", "::1"};
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0 && name.front() != '\0') {
    const std::string full = name.data();
    info.own_names.push_back(full);
    info.own_names.push_back(full.substr(0, full.find('.')));
  }
  AddOwnAddresses(info.own_names);
  info.user = Variable("USER");
  if (info.user.empty()) info.user = Variable("LOGNAME");
  info.slurm = ReadSlurmAllocation(getenv);
  info.batch = ReadBatchNodes(getenv, ReadNodeFile);
  return info;
}

std::string NamedWorkingDirectory(const std::string& pwd) {
  const std::filesystem::path path(pwd);
  const bool is_plain = std::ranges::none_of(
      path, [](const std::filesystem::path& part) { return part == "." || part == ".."; });
  std::error_code error;
  if (!path.is_absolute() || !is_plain || !std::filesystem::equivalent(path, ".", error)) return "";
  return pwd;
}

Result<std::string> WorkingDirectory() {
  std::string named = NamedWorkingDirectory(Variable("PWD"));
  if (!named.empty()) return named;
  std::error_code error;
  const std::filesystem::path path = std::filesystem::current_path(error);
  if (error) return Error{ExitCode::kBadInput, "the current directory: " + error.message()};
  return path.string();
}

}  // namespace dslaunch
