// The process groups of a mesh, as one rank has them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "dslaunch/process_group.h"
#include "trainer/mesh/model_cut.h"

namespace dslaunch {

// A tied parameter or buffer and a group of one rank of each stage that holds it, in the order of
// the stages. The copy on the group's rank 0 counts.
struct TiedGroup {
  std::string name;
  const ProcessGroup* group = nullptr;
};

// Owns its groups but not `world`, which must outlive it.
class MeshGroups {
 public:
  // Every rank of `world` is a replica of the whole model.
  explicit MeshGroups(const ProcessGroup& world);
  // Collective: all ranks of `world` make the same calls. Precondition: the mesh has the size of
  // `world`. `tensor`: the group of this rank's tensor axis if the caller has made it, which must
  // then outlive this; else null.
  MeshGroups(const ProcessGroup& world, const Mesh& mesh, const ProcessGroup* tensor = nullptr);
  // Also calls SetCut.
  MeshGroups(const ProcessGroup& world, const Mesh& mesh, ModelCut cut);

  // Sets the cut of this rank's stage, at most once: a model is made with the tensor group, so its
  // cut is known later than the mesh. Collective like the constructor.
  void SetCut(ModelCut cut);

  const Mesh& mesh() const { return mesh_; }
  const MeshPlace& place() const { return place_; }
  const ModelCut& cut() const { return cut_; }
  // Returns the rank of `stage` whose other coordinates equal this rank's.
  int RankOfStage(int stage) const { return mesh_.RankOf({stage, place_.replica, place_.part}); }
  const ProcessGroup& world() const { return world_; }
  // The replicas of this rank's parameters, by MeshPlace::replica; `world` if the mesh has no other
  // axis.
  const ProcessGroup& data() const { return *data_; }
  // The ranks that divide this rank's layers, by MeshPlace::part; null without tensor parallelism.
  const ProcessGroup* tensor() const { return tensor_; }
  // The groups of cut().tied and cut().tied_buffers, in their orders.
  const std::vector<TiedGroup>& tied() const { return tied_; }
  const std::vector<TiedGroup>& tied_buffers() const { return tied_buffers_; }

  // Returns ModelCut::Counts of the tensor `name` on this rank.
  bool Counts(const std::string& name) const { return cut_.Counts(name, place_); }

 private:
  const ProcessGroup* Group(const std::vector<int>& ranks, std::string name);
  std::vector<TiedGroup> TiedGroups(const std::vector<TiedTensor>& tensors,
                                    const std::string& name);

  const ProcessGroup& world_;
  const Mesh mesh_;
  const MeshPlace place_;
  ModelCut cut_;
  std::string key_;                             // begin of the names of groups
  std::map<std::string, ProcessGroup> groups_;  // keys: names
  const ProcessGroup* tensor_;
  const ProcessGroup* data_;
  std::vector<TiedGroup> tied_, tied_buffers_;
};

}  // namespace dslaunch
