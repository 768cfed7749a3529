#include "trainer/engine/model_states.h"

#include "trainer/engine/replicated_states.h"
#include "trainer/zero/sharded_states.h"

namespace dslaunch {

std::unique_ptr<ModelStates> MakeModelStates(const EngineConfig& config, torch::nn::Module& module,
                                             const std::vector<NamedTensor>& parameters,
                                             const ProcessGroup& group) {
  if (config.zero.stage == 0) {
    return std::make_unique<ReplicatedStates>(config, module, parameters, group);
  }
  return std::make_unique<ShardedStates>(config, module, parameters, group);
}

}  // namespace dslaunch
