// Implements the command `dslaunch data prepare`, which tokenizes training data.
#pragma once

#include <string>
#include <vector>

namespace dslaunch {

// Runs the command in `words`, the arguments after "data", which the launcher has checked:
//   prepare IN... --tokenizer FOLDER --output PREFIX [--key NAME] [--threads N] [--force]
// Prints to stdout. Returns the exit code 0. Throws TrainError: kUsage if the output exists,
// kBadInput if an input is not valid, and kIo if a file cannot be read or written.
int RunDataTool(const std::vector<std::string>& words);

}  // namespace dslaunch
