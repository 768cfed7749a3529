#include "tests/unit/trainer/families/tiny/tiny_config.h"

#include "trainer/families/table_family.h"

namespace dslaunch {
namespace {

class TinyModels : public TableFamily<TinyConfig> {
 public:
  TinyModels()
      : TableFamily(
            "tiny",
            {IntKey("width", &TinyConfig::width, {1, 64}, "units of the tiny layer"),
             IntKey("num_classes", &TinyConfig::num_classes, {2, 100}, "number of classes")}) {}
  nlohmann::json ConfigJson(const ModelConfig& config, const std::string& dtype) const override {
    nlohmann::json json = Section(config);
    json.erase("type");
    json["model_type"] = type();
    json["dtype"] = dtype;
    return json;
  }
  std::vector<std::string> ModelTypes() const override { return {"tiny"}; }
  std::string TensorParallelRefusal(const ModelConfig& config, int64_t parts) const override {
    return IndivisibleKey({{"model.width", config.As<TinyConfig>().width}}, parts);
  }
  WeightNames Names() const override {
    return {.prefix = "net.", .copies = {}, .ignored_endings = {}};
  }
};

}  // namespace

const ModelFamily& TinyFamily() {
  static const TinyModels kFamily;
  return kFamily;
}

}  // namespace dslaunch
