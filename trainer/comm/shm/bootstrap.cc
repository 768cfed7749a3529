#include "trainer/comm/shm/bootstrap.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <sstream>
#include <string>

#include "base/os/pidfd.h"
#include "trainer/comm/shm/layout.h"

namespace dslaunch {
namespace {

constexpr char kSegment[] = "segment";
constexpr char kNo[] = "no";
constexpr char kYes[] = "yes";

// Returns a text that is equal for processes that can open each other's descriptors through /proc;
// empty if this process may not use shared memory.
std::string HostOfThisProcess() {
  const char* disabled = std::getenv("DSLAUNCH_SHM_DISABLE");
  if (disabled != nullptr && *disabled != '\0' && std::string(disabled) != "0") return "";
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat processes = {};
  if (boot.empty() || stat("/proc/self/ns/pid", &processes) != 0) return "";
  return boot + " " + std::to_string(processes.st_ino) + " " + std::to_string(geteuid());
}

std::string KeyOf(const char* what, size_t rank) { return what + ("/" + std::to_string(rank)); }

std::string Get(c10d::Store& store, const std::string& key) { return store.get_to_str(key); }

void Set(c10d::Store& store, const std::string& key, const std::string& value) {
  store.set(key, std::vector<uint8_t>(value.begin(), value.end()));
}

// Publishes `own` and returns the texts of all ranks, by rank.
std::vector<std::string> Exchange(c10d::Store& store, const char* what, int rank, size_t ranks,
                                  const std::string& own) {
  Set(store, KeyOf(what, static_cast<size_t>(rank)), own);
  std::vector<std::string> all;
  for (size_t other = 0; other < ranks; ++other) all.push_back(Get(store, KeyOf(what, other)));
  return all;
}

struct Place {
  pid_t pid = 0;
  int fd = -1;
};

}  // namespace

std::optional<SharedHost> BootstrapSharedHost(c10d::Store& store, int rank, size_t ranks) {
  const std::string host = HostOfThisProcess();
  const std::vector<std::string> said =
      Exchange(store, "host", rank, ranks, host + "\n" + std::to_string(getpid()));
  std::vector<pid_t> pids;
  for (const std::string& text : said) {
    const size_t line = text.find('\n');
    if (line == 0 || text.substr(0, line) != host) return std::nullopt;
    pids.push_back(std::atoi(text.c_str() + line + 1));
  }

  SharedHost shared;
  std::string outcome = kYes;
  try {
    const size_t bytes = SharedLayout::Bytes(ranks);
    if (rank == 0) {
      std::string place = kNo;
      try {
        shared.segment = SharedSegment::Make(bytes);
        place = std::to_string(getpid()) + " " + std::to_string(shared.segment.fd());
      } catch (const std::exception&) {
        outcome = kNo;
      }
      Set(store, kSegment, place);
    } else {
      Place place;
      std::istringstream(Get(store, kSegment)) >> place.pid >> place.fd;
      shared.segment = SharedSegment::Open(place.pid, place.fd, bytes);
    }
    for (const pid_t pid : pids) {
      UniqueFd process(pid == getpid() ? -1 : PidfdOpen(pid));
      if (pid != getpid() && !process) outcome = kNo;
      shared.processes.push_back(std::move(process));
    }
  } catch (const std::system_error&) {
    outcome = kNo;
  }
  const std::vector<std::string> outcomes = Exchange(store, "shares", rank, ranks, outcome);
  if (std::ranges::count(outcomes, kYes) != static_cast<long>(ranks)) return std::nullopt;
  shared.segment.CloseFd();
  return shared;
}

}  // namespace dslaunch
