#pragma once

#include "trainer/config/engine_config.h"
#include "trainer/nn/module_dtype.h"
#include "trainer/parallel/grad_sync.h"

namespace dslaunch {

// What an engine's configuration says about adding up the ranks' gradients.
inline GradSyncOptions SyncOptions(const EngineConfig& config) {
  GradSyncOptions options;
  options.accumulation_dtype = ToScalarType(config.precision.grad_accumulation);
  options.communication_dtype = ToScalarType(TravelDtype(config));
  options.prescale = config.communication.prescale;
  options.predivide_factor = config.communication.predivide_factor;
  options.sum = config.communication.sum;
  options.overlap = config.communication.overlap;
  return options;
}

}  // namespace dslaunch
