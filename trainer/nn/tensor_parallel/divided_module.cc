#include "trainer/nn/tensor_parallel/divided_module.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "trainer/shards/shards.h"

namespace dslaunch {
namespace {

int64_t RoomOf(const TensorParallel& tensor, int64_t size) {
  return (size + tensor.parts - 1) / tensor.parts;
}

}  // namespace

PartRange RangeOf(const TensorParallel& tensor, int64_t size) {
  const int64_t room = RoomOf(tensor, size);
  return {std::min(size, room * tensor.part), std::min(size, room * (tensor.part + 1))};
}

std::optional<Cut> EqualCut(const TensorParallel& tensor, size_t dim, int64_t size,
                            int64_t blocks) {
  if (!tensor.divides()) return std::nullopt;
  return Cut{.dim = dim,
             .range = RangeOf(tensor, size / blocks),
             .room = RoomOf(tensor, size / blocks),
             .blocks = blocks};
}

at::Tensor DividedModule::RegisterPart(const std::string& name, const at::Tensor& whole,
                                       const std::optional<Cut>& cut) {
  if (!cut) return register_parameter(name, whole);
  const auto dim = static_cast<int64_t>(cut->dim);
  const at::Tensor in_blocks = whole.unflatten(dim, {cut->blocks, -1});
  const auto [begin, end] = cut->range;
  std::vector<int64_t> room = in_blocks.sizes().vec();
  room[cut->dim + 1] = cut->room;
  at::Tensor part = at::zeros(room, whole.options());
  part.narrow(dim + 1, 0, end - begin).copy_(in_blocks.narrow(dim + 1, begin, end - begin));
  cuts_[name] = {whole.sizes().vec(), CutShard(in_blocks.sizes().vec(), cut->dim + 1, begin, end),
                 cut->is_copy};
  return register_parameter(name, part.flatten(dim, dim + 1));
}

std::map<std::string, ParameterCut> CutsIn(const torch::nn::Module& model) {
  std::map<std::string, ParameterCut> cuts;
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    const auto* const divided = dynamic_cast<const DividedModule*>(item.value().get());
    if (divided == nullptr) continue;
    for (const auto& [name, cut] : divided->cuts()) cuts[item.key() + "." + name] = cut;
  }
  return cuts;
}

}  // namespace dslaunch
