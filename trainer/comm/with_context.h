// Adds to errors of c10d what was exchanged, and with which rank.
#pragma once

#include <stdexcept>
#include <string>

#include "trainer/base/train_error.h"

namespace dslaunch {

// Returns step(). An exception becomes std::runtime_error "<context>: <its message>"; a TrainError
// passes unchanged, because it was written for users. Use it for beginning a message too: Gloo
// fails at once if it already knows that the peer is lost.
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
