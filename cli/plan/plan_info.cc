#include "cli/plan/plan_info.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>

#include "agent/host/gpus.h"
#include "base/usable_cores.h"

namespace dslaunch {
namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

PlanInfo ReadPlanInfo() {
  PlanInfo info;
  info.default_hostfile_exists = ::access(kDefaultHostfile, F_OK) == 0;
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible != nullptr) info.visible_devices = visible;
  info.local_gpus = CountVisibleGpus(visible);
  info.installed_gpus = CountVisibleGpus(nullptr);
  info.cores = UsableCores();
  info.own_names = {"localhost", "127.0.0.1", "::1"};
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0 && name.front() != '\0') {
    const std::string full = name.data();
    info.own_names.push_back(full);
    info.own_names.push_back(full.substr(0, full.find('.')));
  }
  info.user = Variable("USER");
  if (info.user.empty()) info.user = Variable("LOGNAME");
  info.slurm = ReadSlurmAllocation([](const char* name) { return std::getenv(name); });
  return info;
}

}  // namespace dslaunch
