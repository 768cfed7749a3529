#include "cli/launchers/slurm_ports.h"

#include <fcntl.h>
#include <strings.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string>
#include <system_error>

#include "base/os/ownership.h"
#include "base/unique_fd.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxConfBytes = 4 << 20;
constexpr std::string_view kKey = "SrunPortRange=";

std::optional<uint16_t> ReadPort(std::string_view text) {
  uint16_t port = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (failed != std::errc() || end != text.data() + text.size() || port == 0) return std::nullopt;
  return port;
}

}  // namespace

std::optional<PortRange> FindSrunPortRange(std::string_view slurm_conf) {
  while (!slurm_conf.empty()) {
    std::string_view line = slurm_conf.substr(0, slurm_conf.find('\n'));
    slurm_conf.remove_prefix(std::min(slurm_conf.size(), line.size() + 1));
    line = line.substr(0, line.find('#'));
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(" \t")));
    if (line.size() < kKey.size() || strncasecmp(line.data(), kKey.data(), kKey.size()) != 0)
      continue;
    line.remove_prefix(kKey.size());
    line = line.substr(0, line.find_first_of(" \t\r"));
    const size_t dash = line.find('-');
    if (dash == std::string_view::npos) return std::nullopt;
    const std::optional<uint16_t> first = ReadPort(line.substr(0, dash));
    const std::optional<uint16_t> last = ReadPort(line.substr(dash + 1));
    if (!first || !last || *first > *last) return std::nullopt;
    return PortRange{*first, *last, "Slurm's SrunPortRange"};
  }
  return std::nullopt;
}

PortRange OwnSrunPortRange() {
  const char* const given = std::getenv("SLURM_CONF");
  for (const std::string& path :
       {std::string(given != nullptr ? given : ""), std::string("/etc/slurm/slurm.conf"),
        std::string("/run/slurm/conf/slurm.conf")}) {
    const UniqueFd file(path.empty() ? -1 : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) continue;
    const Result<std::string> text = ReadAll(file, path, kMaxConfBytes);
    return text.ok() ? FindSrunPortRange(*text).value_or(PortRange()) : PortRange();
  }
  return {};
}

}  // namespace dslaunch
