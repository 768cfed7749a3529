#include "trainer/parallel/exchange/own_grad_sync.h"

#include <algorithm>
#include <string>
#include <utility>

#include "trainer/parallel/ddp/make_grad_sync.h"
#include "trainer/parallel/module_tensors.h"
#include "trainer/parallel/same_model.h"

namespace dslaunch {
namespace {

GradSyncOptions OptionsOfOneRank(GradSyncOptions options) {
  options.communication_dtype = options.accumulation_dtype;
  options.prescale = false;
  options.predivide_factor = 1;
  options.sum = true;
  options.broadcast_buffers = false;
  return options;
}

}  // namespace

OwnGradSync::OwnGradSync(const ProcessGroup& group, const std::vector<NamedTensor>& parameters,
                         const std::vector<at::Tensor>& buffers, const GradSyncOptions& options)
    : self_(group.Subgroup({group.rank()},
                           group.NewKey("own_gradients") + std::to_string(group.rank()))),
      local_([&] {
        const at::NoGradGuard no_grad;
        CheckSameModel(group, parameters, buffers, /*may_be_empty=*/options.batches);
        BroadcastFromRank0(group, TensorsOf(parameters));
        BroadcastFromRank0(group, buffers);
        return MakeGradSync(self_, parameters, buffers, OptionsOfOneRank(options));
      }()) {}

void OwnGradSync::Begin(bool sync) {
  sync_ = sync;
  local_->Begin(sync);
}

void OwnGradSync::End() {
  local_->End();
  if (!sync_ || exchange_ == nullptr) return;
  const std::vector<at::Tensor> gradients = local_->Gradients();
  const bool complete =
      std::ranges::all_of(gradients, [](const at::Tensor& gradient) { return gradient.defined(); });
  // If a gradient is missing, the step throws an error that names the parameter, so nothing is
  // reduced.
  if (complete) exchange_->Reduce(gradients);
}

}  // namespace dslaunch
