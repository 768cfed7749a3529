// Adds to errors of c10d the exchange that failed and its rank.
#pragma once

#include <stdexcept>
#include <string>

#include "trainer/base/train_error.h"

namespace dslaunch {

// Returns step(). An exception becomes std::runtime_error "<context>: <its message>"; a TrainError
// passes unchanged, because it was written for users. Use it also for beginning a message, because
// Gloo then fails at once if the peer was already lost.
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
