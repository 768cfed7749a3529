#pragma once

#include <memory>
#include <vector>

#include "trainer/parallel/grad_sync.h"

namespace dslaunch {

// Makes the GradSync of the trained `parameters`. Throws as CheckSameModel does. `group` must
// outlive the result.
//
// Uses c10d::Reducer if gradients accumulate in the parameters' dtype, but not for batches, because
// it reduces only the gradients of one backward pass. Otherwise BucketSync, which keeps its own
// accumulators and reduces them bucket by bucket.
std::unique_ptr<GradSync> MakeGradSync(const ProcessGroup& group,
                                       std::vector<NamedTensor> parameters,
                                       std::vector<at::Tensor> buffers,
                                       const GradSyncOptions& options);

}  // namespace dslaunch
