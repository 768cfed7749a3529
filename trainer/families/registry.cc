// Implements the part of the registry of model families that does not need LibTorch.
#include "trainer/config/model_family.h"

namespace dslaunch {

#define FAMILY(Name) const ModelFamily& Name##Family();
#include "trainer/families/families.def"
#undef FAMILY

const std::vector<const ModelFamily*>& ModelFamilies() {
  static const std::vector<const ModelFamily*> kFamilies = {
#define FAMILY(Name) &Name##Family(),
#include "trainer/families/families.def"
#undef FAMILY
  };
  return kFamilies;
}

}  // namespace dslaunch
