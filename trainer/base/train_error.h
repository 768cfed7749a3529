// The trainer's own exception, thrown anywhere and caught once, in main, with the codes that it
// carries.
#pragma once

#include <string>

#include "base/exit_code.h"  // IWYU pragma: export
#include "dslaunch/error.h"  // IWYU pragma: export

namespace dslaunch {

// Throws TrainError kBadInput: what a user gave cannot be done.
[[noreturn]] inline void RefuseInput(const std::string& problem) {
  throw TrainError(ExitCode::kBadInput, problem);
}

}  // namespace dslaunch
