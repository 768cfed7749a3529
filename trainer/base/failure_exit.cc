#include "trainer/base/failure_exit.h"

#include <cstdlib>
#include <utility>

#include "base/text/sanitize.h"
#include "trainer/base/log.h"

namespace dslaunch {
namespace {

std::function<void(const TrainError&)>& Exit() {
  static auto* const exit = new std::function<void(const TrainError&)>;
  return *exit;
}

}  // namespace

void SetFailureExit(std::function<void(const TrainError&)> exit) { Exit() = std::move(exit); }

void ExitByFailure(const TrainError& error) {
  if (Exit()) Exit()(error);
  PrintError(SanitizeForTerminal(error.what()));
  std::_Exit(error.exit_code());
}

}  // namespace dslaunch
