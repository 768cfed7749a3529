// The ports of the machine of srun to which Slurm's nodes may connect.
#pragma once

#include <optional>
#include <string_view>

#include "cli/launchers/start_all.h"

namespace dslaunch {

// Returns SrunPortRange of a slurm.conf, which sites set where a firewall is between the nodes and
// the machine of srun; nullopt: it is not set, or is not a valid range. Pure.
std::optional<PortRange> FindSrunPortRange(std::string_view slurm_conf);

// Returns the range of this machine's slurm.conf: $SLURM_CONF, /etc/slurm/slurm.conf, or what
// slurmd got from its controller. Included files are not read.
PortRange OwnSrunPortRange();

}  // namespace dslaunch
