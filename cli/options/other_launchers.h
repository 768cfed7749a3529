// Defines options of mpirun, horovodrun, `accelerate launch` and torch.distributed.launch that
// dslaunch accepts under other names, or refuses with a hint.
#pragma once

#include <string>
#include <string_view>

#include "cli/options/option_table.h"

namespace dslaunch {

// Returns the accepted options, as rows of LaunchOptionTable().
OptionTable OtherLaunchersOptions();

// Returns a hint for an option that is not accepted, spelt with '-' or '_' ("-mca",
// "--gloo-timeout-seconds=30"); "" for other words. Has no side effects.
std::string OptionRemedy(std::string_view word);

}  // namespace dslaunch
