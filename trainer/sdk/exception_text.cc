#include <c10/util/Exception.h>

#include <exception>
#include <string>

#include "trainer/base/train_error.h"
#include "trainer/comm/explain.h"

namespace dslaunch {

TrainError ExplainException() {
  const auto explained = [](std::string what) -> TrainError {
    const CommFailure failure = ClassifyCommFailure(what);
    what = what.substr(0, what.find('\n'));
    if (IsNotGathered(what)) return {ExitCode::kBadInput, what};
    if (failure == CommFailure::kPeerLost) return PeerLost(what);
    if (failure == CommFailure::kTimedOut) return PeerLate(what);
    return {ExitCode{1}, what};
  };
  try {
    throw;
  } catch (const TrainError& error) {
    return error;
  } catch (const c10::DistError& error) {
    return explained(std::string("c10d: ") + error.what_without_backtrace());
  } catch (const c10::Error& error) {
    return explained(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return explained(error.what());
  } catch (...) {
    return {ExitCode{1}, "an exception that is not a std::exception"};
  }
}

}  // namespace dslaunch
