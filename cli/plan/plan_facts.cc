#include "cli/plan/plan_facts.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <thread>

#include "agent/host/gpus.h"

namespace dslaunch {
namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

PlanFacts ReadPlanFacts() {
  PlanFacts facts;
  facts.default_hostfile_exists = ::access(kDefaultHostfile, F_OK) == 0;
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible != nullptr) facts.visible_devices = visible;
  facts.local_gpus = CountVisibleGpus(visible);
  facts.installed_gpus = CountVisibleGpus(nullptr);
  facts.cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  facts.own_names = {"localhost", "127.0.0.1", "::1"};
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0 && name.front() != '\0') {
    const std::string full = name.data();
    facts.own_names.push_back(full);
    facts.own_names.push_back(full.substr(0, full.find('.')));
  }
  facts.user = Variable("USER");
  if (facts.user.empty()) facts.user = Variable("LOGNAME");
  return facts;
}

}  // namespace dslaunch
