// Finds the ports of the machine of srun to which Slurm's nodes may connect.
#pragma once

#include <optional>
#include <string_view>

#include "cli/launchers/start_all.h"

namespace dslaunch {

// Returns the SrunPortRange of a slurm.conf; nullopt if it is not set or not a valid range. Sites
// set it if a firewall is between the nodes and the machine of srun. Has no side effects.
std::optional<PortRange> FindSrunPortRange(std::string_view slurm_conf);

// Returns the range in this machine's slurm.conf: $SLURM_CONF, /etc/slurm/slurm.conf, or the file
// that slurmd got from its controller. Included files are not read.
PortRange OwnSrunPortRange();

}  // namespace dslaunch
