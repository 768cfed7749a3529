#include "trainer/mesh/model_cut.h"

#include <algorithm>

namespace dslaunch {

bool ModelCut::Counts(const std::string& name, const MeshPlace& place) const {
  if (place.part > 0 && !divided.contains(name)) return false;
  for (const std::vector<TiedTensor>* list : {&tied, &tied_buffers}) {
    const auto found = std::ranges::find(*list, name, &TiedTensor::name);
    if (found != list->end()) return found->stages.front() == place.stage;
  }
  return true;
}

}  // namespace dslaunch
