#pragma once

#include "trainer/config/engine_config.h"
#include "trainer/nn/module_dtype.h"
#include "trainer/parallel/grad_sync.h"
#include "trainer/parallel/model_states.h"
#include "trainer/parallel/module_tensors.h"

namespace dslaunch {

// Returns `dtype`, or fp64 if `module` trains parameters in fp64: the configuration has no dtype
// wider than fp32, so the engine does not convert an fp64 model.
inline at::ScalarType WidenedFor(const torch::nn::Module& module, const EngineConfig& config,
                                 Dtype dtype) {
  const bool casts = config.precision.model != Dtype::kFloat32;
  if (casts) return ToScalarType(dtype);
  for (const NamedTensor& parameter : TrainableParameters(module)) {
    if (parameter.tensor.scalar_type() == at::kDouble) return at::kDouble;
  }
  return ToScalarType(dtype);
}

// Returns the options for reducing the ranks' gradients of `module` under `config`.
inline GradSyncOptions SyncOptions(const EngineConfig& config, const torch::nn::Module& module) {
  GradSyncOptions options;
  options.accumulation_dtype = WidenedFor(module, config, config.precision.grad_accumulation);
  options.communication_dtype = config.communication.dtype
                                    ? ToScalarType(*config.communication.dtype)
                                    : WidenedFor(module, config, TravelDtype(config));
  options.keeps_parameter_dtype = !config.communication.dtype;
  options.prescale = config.communication.prescale;
  options.predivide_factor = config.communication.predivide_factor;
  options.sum = config.communication.sum;
  options.overlap = config.communication.overlap;
  options.broadcast_buffers = config.broadcast_buffers;
  return options;
}

// Returns the SyncOptions for ranks that hold whole models.
inline GradSyncOptions WholeModelSyncOptions(const EngineConfig& config,
                                             const torch::nn::Module& module, Passes passes) {
  GradSyncOptions options = SyncOptions(config, module);
  options.batches = passes == Passes::kBatches;
  options.ignore_unused = config.zero.ignore_unused_parameters;
  options.reports_waits = config.tensor_parallel.size > 1;
  return options;
}

}  // namespace dslaunch
