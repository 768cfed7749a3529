// Adds to errors of c10d the exchange and the rank that failed.
#pragma once

#include <stdexcept>
#include <string>

#include "trainer/base/train_error.h"

namespace dslaunch {

// Returns step(). An exception becomes std::runtime_error "<context>: <its message>", except that a
// TrainError, whose message is written for users, passes unchanged. Also wrap the beginning of a
// message, because Gloo then fails at once if the peer was already lost.
template <class Step>
auto WithContext(const std::string& context, Step step) {
  try {
    return step();
  } catch (const TrainError&) {
    throw;
  } catch (const std::exception& error) {
    throw std::runtime_error(context + ": " + error.what());
  }
}

}  // namespace dslaunch
