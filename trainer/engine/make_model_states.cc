#include "trainer/nn/module_dtype.h"
#include "trainer/parallel/ddp/replicated_states.h"
#include "trainer/parallel/exchange/local_states.h"
#include "trainer/parallel/model_states.h"
#include "trainer/parallel/module_tensors.h"
#include "trainer/parallel/server/server_states.h"
#include "trainer/parallel/server/stale_states.h"
#include "trainer/parallel/zero/sharded_states.h"

namespace dslaunch {

namespace {

// What was deferred gets its memory, on `device`, and its values.
void Materialize(torch::nn::Module& module, InitRecording& deferred, c10::Device device) {
  std::vector<at::Tensor> tensors = TensorsOf(Unique(module.named_parameters()));
  for (const NamedTensor& item : Unique(module.named_buffers())) tensors.push_back(item.tensor);
  deferred.Replay(tensors, [&](size_t index, const at::Tensor& values) {
    tensors[index].set_data(values.detach().to(device));
  });
}

}  // namespace

std::unique_ptr<ModelStates> MakeModelStates(const EngineConfig& config, torch::nn::Module& module,
                                             const MeshGroups& ranks, Passes passes,
                                             InitRecording* deferred) {
  const c10::Device device = ranks.world().device();
  // With ZeRO ShardedStates does this: all parameters at once may not fit into memory, and in fp32
  // they take more than what a rank keeps.
  if (deferred == nullptr || config.zero.stage == 0) {
    if (deferred != nullptr) {
      Materialize(module, *deferred, device);
    } else if (!device.is_cpu() && config.zero.stage < 3) {
      module.to(device);
    }
    CastModule(module, config.precision.model, config.precision.batch_norm_float32);
    deferred = nullptr;
  }
  if (config.parallel.mode == ParallelConfig::Mode::kParameterServer) {
    if (config.parallel.staleness) {
      return std::make_unique<StaleStates>(config, module, ranks, passes);
    }
    return std::make_unique<ServerStates>(config, module, ranks, passes);
  }
  if (config.parallel.mode != ParallelConfig::Mode::kAllReduce ||
      (config.optimizer && config.optimizer->CompressesExchanges())) {
    return std::make_unique<LocalStates>(config, module, ranks, passes);
  }
  if (config.zero.stage == 0) {
    return std::make_unique<ReplicatedStates>(config, module, ranks, passes);
  }
  return std::make_unique<ShardedStates>(config, module, ranks, passes, deferred);
}

}  // namespace dslaunch
