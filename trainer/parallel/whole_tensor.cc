#include "trainer/parallel/whole_tensor.h"

#include <ATen/ATen.h>

#include <vector>

#include "trainer/shards/shards.h"

namespace dslaunch {
namespace {

// Returns views of the shard's elements in `flat`, as at most three matrices.
std::vector<at::Tensor> ViewsOf(const at::Tensor& flat, const Shard& shard) {
  std::vector<at::Tensor> views;
  for (const ShardBlock& block : BlocksOf(shard)) {
    views.push_back(flat.as_strided({block.rows, block.row}, {shard.pitch, 1},
                                    flat.storage_offset() + block.at));
  }
  return views;
}

}  // namespace

at::Tensor PartOf(const at::Tensor& flat, const Shard& shard) {
  if (shard.contiguous()) return flat.narrow(0, shard.start, shard.elements());
  const at::Tensor part = at::empty({shard.elements()}, flat.options());
  int64_t at = 0;
  for (const at::Tensor& view : ViewsOf(flat, shard)) {
    part.narrow(0, at, view.numel()).view(view.sizes()).copy_(view);
    at += view.numel();
  }
  return part;
}

void PutPart(const at::Tensor& part, const Shard& shard, const at::Tensor& flat) {
  const at::Tensor row = part.detach().flatten();
  int64_t at = 0;
  for (const at::Tensor& view : ViewsOf(flat, shard)) {
    view.copy_(row.narrow(0, at, view.numel()).view(view.sizes()));
    at += view.numel();
  }
}

void PlaceInWhole(const MeshGroups& ranks, const std::string& name, TensorPart& part) {
  part.is_canonical = ranks.Counts(name);
  const auto cut = ranks.cut().divided.find(name);
  if (cut == ranks.cut().divided.end()) return;
  part.shape = cut->second.shape;
  part.shard = Slice(cut->second.shard, part.shard.start, part.shard.stop);
  const int64_t elements = part.shard.elements();
  if (elements < part.tensor.numel()) part.tensor = part.tensor.view(-1).narrow(0, 0, elements);
}

}  // namespace dslaunch
