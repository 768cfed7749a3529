#pragma once

#include <memory>
#include <vector>

#include "trainer/parallel/grad_sync.h"

namespace dslaunch {

// Returns the GradSync for the trained `parameters`. Throws TrainError kBadInput on every rank if
// the ranks' models differ, or if there are no trained parameters and options.batches is false.
// `group` must outlive the result.
//
// Uses c10d::Reducer if gradients accumulate in the parameters' dtype and a pass has a single
// backward pass, because c10d::Reducer reduces the gradients of only one backward pass. Otherwise
// uses BucketSync, which has separate accumulators and reduces them bucket by bucket.
std::unique_ptr<GradSync> MakeGradSync(const ProcessGroup& group,
                                       std::vector<NamedTensor> parameters,
                                       std::vector<at::Tensor> buffers,
                                       const GradSyncOptions& options);

}  // namespace dslaunch
