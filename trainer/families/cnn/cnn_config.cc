#include "trainer/families/cnn/cnn_config.h"

#include "trainer/families/table_family.h"

namespace dslaunch {

const ModelFamily& CnnFamily() {
  static const TableFamily<CnnConfig> kFamily(
      "cnn", {IntKey("num_classes", &CnnConfig::num_classes, {2, 1 << 20}, "number of classes"),
              IntKey("hidden_size", &CnnConfig::hidden_size, {1, 1 << 20},
                     "units of the layer before the last")});
  return kFamily;
}

}  // namespace dslaunch
