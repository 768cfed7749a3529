// Errors of c10d name neither what was exchanged nor with whom.
#pragma once

#include <stdexcept>
#include <string>

#include "trainer/base/train_error.h"

namespace dslaunch {

// step(). What it throws becomes std::runtime_error "<context>: <its message>"; a TrainError passes
// as it is, having been written for users. Beginning a message needs this as well as waiting for
// it: Gloo fails at once when it knows already that the peer is gone.
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
