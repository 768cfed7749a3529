// Defines the variables by which --accelerate_config is passed to the ranks: dslaunch's own program
// (python/dslaunch/accelerate_env.py) reads them, removes them, and executes the user's program.
#pragma once

namespace dslaunch {

inline constexpr char kAccelerateConfigVariable[] =
    "DSLAUNCH_ACCELERATE_CONFIG";  // contents of the configuration file
inline constexpr char kAccelerateFileVariable[] =
    "DSLAUNCH_ACCELERATE_CONFIG_FILE";  // path of the configuration file

}  // namespace dslaunch
