// How --accelerate_config travels to ranks: a program of dslaunch's
// (python/dslaunch/accelerate_env.py) reads these two variables, removes them, and becomes the
// user's program.
#pragma once

namespace dslaunch {

inline constexpr char kAccelerateConfigVariable[] = "DSLAUNCH_ACCELERATE_CONFIG";     // its text
inline constexpr char kAccelerateFileVariable[] = "DSLAUNCH_ACCELERATE_CONFIG_FILE";  // its path

}  // namespace dslaunch
