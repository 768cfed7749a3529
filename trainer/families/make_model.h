// Makes a model of any family from its settings.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dslaunch/model.h"
#include "trainer/config/model_family.h"
#include "trainer/nn/tensor_parallel/tensor_parallel.h"

namespace dslaunch {

// Makes a model with the settings `config` for samples of `input_shape` (Dataset::input_shape).
// Draws initial weights from the default generator. Modules are registered in such an order that
// the weights equal those of the same model in Python after the same torch.manual_seed. Throws
// kBadInput for samples that the model does not accept.
//
// If `tensor` divides the model, the result is the part of one rank, and CutsIn(model) describes
// that part. Each parameter is drawn whole and then cut, so the weights do not depend on the number
// of parts. forward and Loss are collective over the group, and forward returns a part of the
// output. Throws kBadInput if the family cannot divide this model into that many parts.
std::shared_ptr<Model> MakeModel(const ModelConfig& config, const std::vector<int64_t>& input_shape,
                                 const TensorParallel& tensor = {});

}  // namespace dslaunch
