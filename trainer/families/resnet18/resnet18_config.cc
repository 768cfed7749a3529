#include "trainer/families/resnet18/resnet18_config.h"

#include "trainer/families/table_family.h"

namespace dslaunch {

const ModelFamily& Resnet18Family() {
  static const TableFamily<Resnet18Config> kFamily(
      "resnet18",
      {IntKey("num_classes", &Resnet18Config::num_classes, {2, 1 << 20}, "number of classes")});
  return kFamily;
}

}  // namespace dslaunch
