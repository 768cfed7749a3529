#include "trainer/models/models.h"

#include "trainer/base/train_error.h"
#include "trainer/models/cnn.h"
#include "trainer/models/gpt2.h"
#include "trainer/models/mlp.h"
#include "trainer/models/plugin_model.h"
#include "trainer/models/resnet18.h"

namespace dslaunch {

std::shared_ptr<Model> MakeModel(const ModelConfig& config,
                                 const std::vector<int64_t>& input_shape) {
  struct Maker {
    const std::vector<int64_t>& shape;
    std::shared_ptr<Model> operator()(const MlpConfig& mlp) const {
      return std::make_shared<Mlp>(mlp, shape);
    }
    std::shared_ptr<Model> operator()(const CnnConfig& cnn) const {
      return std::make_shared<Cnn>(cnn, shape);
    }
    std::shared_ptr<Model> operator()(const Resnet18Config& resnet18) const {
      return std::make_shared<Resnet18>(resnet18, shape);
    }
    std::shared_ptr<Model> operator()(const Gpt2Config& gpt2) const {
      return std::make_shared<Gpt2>(gpt2, shape);
    }
    std::shared_ptr<Model> operator()(const PluginConfig& plugin) const {
      return LoadPluginModel(plugin, shape);
    }
  };
  return std::visit(Maker{input_shape}, config);
}

}  // namespace dslaunch
