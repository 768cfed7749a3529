// The ports at which Slurm's nodes may connect to where srun runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace dslaunch {

// Both ends included.
struct PortRange {
  uint16_t first = 0;  // 0: any free port
  uint16_t last = 0;
  bool operator==(const PortRange&) const = default;
};

// SrunPortRange of a slurm.conf, which sites set where a firewall is between the nodes and the
// machine of srun; nullopt: it is not set, or is none. Pure.
std::optional<PortRange> FindSrunPortRange(std::string_view slurm_conf);

// That of this machine's: $SLURM_CONF, /etc/slurm/slurm.conf, or what slurmd got from its
// controller. Included files are not looked at.
PortRange OwnSrunPortRange();

}  // namespace dslaunch
