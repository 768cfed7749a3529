// Creates the process groups of a mesh to which this rank belongs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "dslaunch/process_group.h"
#include "trainer/mesh/model_cut.h"

namespace dslaunch {

// A tied parameter or buffer, and the group that keeps its copies equal. The group has one rank of
// each stage that holds the tensor, in the order of the stages. The copy on the group's rank 0 is
// authoritative.
struct TiedGroup {
  std::string name;
  const ProcessGroup* group = nullptr;
};

// Owns the process groups of one rank.
class MeshGroups {
 public:
  // Creates the groups of a mesh in which every rank of `world` is a replica of the whole model.
  // `world` must outlive this object.
  explicit MeshGroups(const ProcessGroup& world);
  // Creates the groups of `mesh`, which must have as many ranks as `world`. Collective: all ranks
  // of `world` make the same calls. `tensor` is the group of this rank's tensor axis if the caller
  // has already created it, and must then outlive this object; otherwise null.
  MeshGroups(const ProcessGroup& world, const Mesh& mesh, const ProcessGroup* tensor = nullptr);
  // Creates the groups of `mesh` and calls SetCut(cut).
  MeshGroups(const ProcessGroup& world, const Mesh& mesh, ModelCut cut);

  // Sets the cut of this rank's stage. Creating the model requires the tensor group, and the cut is
  // known only after that, so it is not an argument of the constructor. Call it at most once.
  // Collective like the constructor.
  void SetCut(ModelCut cut);

  const Mesh& mesh() const { return mesh_; }
  const MeshPlace& place() const { return place_; }
  const ModelCut& cut() const { return cut_; }
  // Returns the rank in stage `stage` whose other coordinates equal those of this rank.
  int RankOfStage(int stage) const { return mesh_.RankOf({stage, place_.replica, place_.part}); }
  const ProcessGroup& world() const { return world_; }
  // Returns the group of the replicas of this rank's parameters, in the order of
  // MeshPlace::replica. The result is `world` if the mesh has no other axis.
  const ProcessGroup& data() const { return *data_; }
  // Returns the group of the ranks that share this rank's layers, in the order of MeshPlace::part;
  // null without tensor parallelism.
  const ProcessGroup* tensor() const { return tensor_; }
  // Returns the groups for the parameters cut().tied, in the same order.
  const std::vector<TiedGroup>& tied() const { return tied_; }
  // Returns the groups for the buffers cut().tied_buffers, in the same order.
  const std::vector<TiedGroup>& tied_buffers() const { return tied_buffers_; }

  // Returns ModelCut::Counts for the tensor `name` on this rank.
  bool Counts(const std::string& name) const { return cut_.Counts(name, place_); }

 private:
  const ProcessGroup* Group(const std::vector<int>& ranks, std::string name);
  std::vector<TiedGroup> TiedGroups(const std::vector<TiedTensor>& tensors,
                                    const std::string& name);

  const ProcessGroup& world_;
  const Mesh mesh_;
  const MeshPlace place_;
  ModelCut cut_;
  std::string key_;                             // prefix of the names of the groups
  std::map<std::string, ProcessGroup> groups_;  // this rank's groups, by name
  const ProcessGroup* tensor_;
  const ProcessGroup* data_;
  std::vector<TiedGroup> tied_, tied_buffers_;
};

}  // namespace dslaunch
