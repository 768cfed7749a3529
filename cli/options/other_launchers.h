// Options of mpirun, horovodrun, `accelerate launch` and torch.distributed.launch that dslaunch
// takes by other names, or refuses with its own.
#pragma once

#include <string>
#include <string_view>

#include "cli/options/option_table.h"

namespace dslaunch {

// The options that are taken: rows of LaunchOptionTable().
OptionTable OtherLaunchersOptions();

// What to do in place of an option that is not taken, spelt with '-' or '_' ("-mca",
// "--gloo-timeout-seconds=30"); empty for other names. Pure.
std::string OptionRemedy(std::string_view word);

}  // namespace dslaunch
