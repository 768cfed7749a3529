#include "trainer/parallel/ddp/make_grad_sync.h"

#include <algorithm>

#include "trainer/parallel/ddp/bucket_sync.h"
#include "trainer/parallel/ddp/reducer_sync.h"
#include "trainer/parallel/same_model.h"

namespace dslaunch {

std::unique_ptr<GradSync> MakeGradSync(const ProcessGroup& group,
                                       std::vector<NamedTensor> parameters,
                                       std::vector<at::Tensor> buffers,
                                       const GradSyncOptions& options) {
  CheckSameModel(group, parameters, buffers, /*may_be_empty=*/options.batches);
  if (!options.broadcast_buffers) buffers.clear();
  GradSyncOptions chosen = options;
  // A group of one rank sends nothing, so its gradients need not be rounded to the communication
  // dtype.
  if (group.world_size() == 1) chosen.communication_dtype = chosen.accumulation_dtype;
  const bool in_parameter_dtype =
      std::ranges::all_of(parameters, [&](const NamedTensor& parameter) {
        return parameter.tensor.scalar_type() == options.accumulation_dtype;
      });
  // c10d::Reducer waits internally, where the DesyncDetector cannot record the wait, so it is not
  // used if waits must be recorded.
  if (in_parameter_dtype && !options.batches && !options.reports_waits) {
    return std::make_unique<ReducerSync>(group, std::move(parameters), std::move(buffers), chosen);
  }
  return std::make_unique<BucketSync>(group, std::move(parameters), std::move(buffers), chosen);
}

}  // namespace dslaunch
