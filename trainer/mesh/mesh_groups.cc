#include "trainer/mesh/mesh_groups.h"

#include <utility>

namespace dslaunch {

MeshGroups::MeshGroups(const ProcessGroup& world)
    : MeshGroups(world, Mesh{.data = world.world_size()}, /*tensor=*/nullptr) {}

MeshGroups::MeshGroups(const ProcessGroup& world, const Mesh& mesh, ModelCut cut)
    : MeshGroups(world, mesh) {
  SetCut(std::move(cut));
}

// Creates the groups in the same order on every rank, as ProcessGroup::Subgroup requires. Stages
// exchange activations through a StageLink, so the pipeline axis has no group.
MeshGroups::MeshGroups(const ProcessGroup& world, const Mesh& mesh, const ProcessGroup* tensor)
    : world_(world), mesh_(mesh), place_(mesh.PlaceOf(world.rank())), tensor_(tensor) {
  if (!mesh_.cuts_model()) {
    data_ = &world_;
    return;
  }
  key_ = world_.NewKey("mesh");
  if (mesh_.tensor > 1 && tensor_ == nullptr) {
    tensor_ = Group(mesh_.RanksAlong(MeshAxis::kTensor, place_), key_ + "tensor/");
  }
  data_ = Group(mesh_.RanksAlong(MeshAxis::kData, place_), key_ + "data/");
}

void MeshGroups::SetCut(ModelCut cut) {
  cut_ = std::move(cut);
  tied_ = TiedGroups(cut_.tied, key_ + "tied/");
  tied_buffers_ = TiedGroups(cut_.tied_buffers, key_ + "tied/");
}

// Returns the group of `ranks`, which the first call for these ranks creates.
const ProcessGroup* MeshGroups::Group(const std::vector<int>& ranks, std::string name) {
  for (const int rank : ranks) name += std::to_string(rank) + ",";
  const auto found = groups_.find(name);
  if (found != groups_.end()) return &found->second;
  return &groups_.emplace(name, world_.Subgroup(ranks, name)).first->second;
}

std::vector<TiedGroup> MeshGroups::TiedGroups(const std::vector<TiedTensor>& tensors,
                                              const std::string& name) {
  std::vector<TiedGroup> tied;
  for (const TiedTensor& tensor : tensors) {
    std::vector<int> ranks;
    for (const int stage : tensor.stages) ranks.push_back(RankOfStage(stage));
    tied.push_back({tensor.name, Group(ranks, name)});
  }
  return tied;
}

}  // namespace dslaunch
