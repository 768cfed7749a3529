#include "trainer/families/make_model.h"

#include <string>

#include "trainer/base/train_error.h"

namespace dslaunch {

#define FAMILY(Name)                                                                 \
  const ModelFamily& Name##Family();                                                 \
  std::shared_ptr<Model> Make##Name(const ModelConfig&, const std::vector<int64_t>&, \
                                    const TensorParallel&);
#include "trainer/families/families.def"
#undef FAMILY

std::shared_ptr<Model> MakeModel(const ModelConfig& config, const std::vector<int64_t>& input_shape,
                                 const TensorParallel& tensor) {
  if (tensor.divides()) {
    const std::string refusal = config.family().TensorParallelRefusal(config, tensor.parts);
    if (!refusal.empty()) RefuseInput(refusal);
  }
#define FAMILY(Name) \
  if (&config.family() == &Name##Family()) return Make##Name(config, input_shape, tensor);
#include "trainer/families/families.def"
#undef FAMILY
  return nullptr;  // not reached, because families.def lists every family
}

}  // namespace dslaunch
