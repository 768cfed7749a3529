#pragma once

#include <memory>
#include <vector>

#include "trainer/parallel/grad_sync.h"

namespace dslaunch {

// `parameters` are those that are trained. Throws as CheckSameOnAllRanks does, or, but for batches,
// where there are none. `group` must outlive the result.
//
// c10d::Reducer, where gradients accumulate in the parameters' dtype, but not for batches: it
// reduces only what one backward pass has. Else BucketSync, which keeps its own accumulators and
// reduces them bucket by bucket.
std::unique_ptr<GradSync> MakeGradSync(const ProcessGroup& group,
                                       std::vector<NamedTensor> parameters,
                                       std::vector<at::Tensor> buffers,
                                       const GradSyncOptions& options);

}  // namespace dslaunch
