#include "trainer/nn/module_dtype.h"
#include "trainer/parallel/ddp/replicated_states.h"
#include "trainer/parallel/model_states.h"
#include "trainer/parallel/module_tensors.h"
#include "trainer/parallel/zero/sharded_states.h"

namespace dslaunch {

namespace {

// What was deferred gets its memory and its values.
void Materialize(torch::nn::Module& module, InitRecording& deferred) {
  std::vector<at::Tensor> tensors = TensorsOf(Unique(module.named_parameters()));
  for (const NamedTensor& item : Unique(module.named_buffers())) tensors.push_back(item.tensor);
  deferred.Replay(tensors, [&](size_t index, const at::Tensor& values) {
    tensors[index].set_data(values.detach());
  });
}

}  // namespace

std::unique_ptr<ModelStates> MakeModelStates(const EngineConfig& config, torch::nn::Module& module,
                                             const EngineRanks& ranks, Passes passes,
                                             InitRecording* deferred) {
  // At stage 3 only ShardedStates may do this: all parameters at once may not fit into memory.
  if (deferred == nullptr || config.zero.stage < 3) {
    if (deferred != nullptr) Materialize(module, *deferred);
    CastModule(module, config.precision.model, config.precision.batch_norm_float32);
    deferred = nullptr;
  }
  if (config.zero.stage == 0) {
    return std::make_unique<ReplicatedStates>(config, module, ranks, passes);
  }
  return std::make_unique<ShardedStates>(config, module, ranks, passes, deferred);
}

}  // namespace dslaunch
