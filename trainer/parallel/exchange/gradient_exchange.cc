#include "trainer/parallel/exchange/gradient_exchange.h"

#include <map>
#include <optional>

#include "trainer/parallel/exchange/flat_mean.h"
#include "trainer/parallel/exchange/outer_step.h"
#include "trainer/parallel/exchange/power_sgd.h"

namespace dslaunch {
namespace {

// The exchange of an optimizer that compresses what ranks exchange: it takes reduced gradients in
// some of the steps, and each rank's own in the others.
class OptimizerExchange : public GradientExchange {
 public:
  OptimizerExchange(const ProcessGroup& group, std::vector<at::Tensor> buffers,
                    const std::vector<NamedTensor>& parameters, const Optimizer& optimizer,
                    const GradSyncOptions& options, bool weights_differ)
      : GradientExchange(group, std::move(buffers)),
        parameters_(parameters),
        optimizer_(optimizer),
        options_(options),
        weights_differ_(weights_differ) {}

  void Reduce(const std::vector<at::Tensor>& gradients) override {
    own_ = !optimizer_.TakesReducedGradients();
    if (own_) return;
    std::map<at::ScalarType, std::vector<at::Tensor>> by_dtype;
    for (size_t i = 0; i < gradients.size(); ++i) {
      by_dtype[MessageDtype(options_, parameters_[i].tensor.scalar_type())].push_back(gradients[i]);
    }
    for (const auto& [dtype, same] : by_dtype) {
      AllReduceFlat(group_, same, dtype, ScaleOf(options_, group_.world_size()));
    }
  }
  bool gradients_are_own() const override { return own_; }
  bool weights_differ() const override { return weights_differ_; }

 private:
  const std::vector<NamedTensor> parameters_;
  const Optimizer& optimizer_;
  const GradSyncOptions options_;
  const bool weights_differ_;
  bool own_ = false;
};

}  // namespace

std::unique_ptr<GradientExchange> MakeGradientExchange(
    const EngineConfig& config, const ProcessGroup& group,
    const std::vector<NamedTensor>& parameters, const std::vector<WeightPart>& parts,
    std::vector<at::Tensor> buffers, const Optimizer& optimizer, const GradSyncOptions& options) {
  const ParallelConfig& parallel = config.parallel;
  if (!options.broadcast_buffers) buffers.clear();
  if (parallel.mode == ParallelConfig::Mode::kPowerSgd) {
    return std::make_unique<PowerSgd>(parallel, group, std::move(buffers), parameters,
                                      options.accumulation_dtype);
  }
  if (parallel.mode == ParallelConfig::Mode::kAllReduce) {
    return std::make_unique<OptimizerExchange>(group, std::move(buffers), parameters, optimizer,
                                               options, config.TrainsApart());
  }
  std::vector<NamedTensor> weights;
  for (const WeightPart& part : parts) {
    weights.push_back({parameters[part.parameter].name, part.weight});
  }
  std::optional<at::ScalarType> dtype;
  if (config.communication.dtype) dtype = options.communication_dtype;
  return std::make_unique<OuterStep>(parallel, group, std::move(buffers), std::move(weights),
                                     dtype);
}

}  // namespace dslaunch
