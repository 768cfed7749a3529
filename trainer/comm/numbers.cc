#include "trainer/comm/numbers.h"

#include <ATen/ATen.h>

namespace dslaunch {

std::vector<std::vector<double>> GatherNumbers(const ProcessGroup& group,
                                               const std::vector<double>& own) {
  const at::Tensor all = group.AllGather(at::tensor(own, at::kDouble));
  std::vector<std::vector<double>> numbers;
  const double* begin = all.const_data_ptr<double>();
  for (int rank = 0; rank < group.world_size(); ++rank, begin += own.size()) {
    numbers.emplace_back(begin, begin + own.size());
  }
  return numbers;
}

}  // namespace dslaunch
