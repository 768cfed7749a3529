#include "trainer/families/mlp/mlp_config.h"

#include "trainer/families/table_family.h"

namespace dslaunch {

const ModelFamily& MlpFamily() {
  static const TableFamily<MlpConfig> kFamily(
      "mlp",
      {IntKey("num_classes", &MlpConfig::num_classes, {2, 1 << 20}, "number of classes"),
       IntKey("hidden_size", &MlpConfig::hidden_size, {1, 1 << 20}, "units of the hidden layer")});
  return kFamily;
}

}  // namespace dslaunch
