// Arranges the ranks of a job as a grid with three axes: pipeline stages, replicas (data
// parallelism), and parts of parameters (tensor parallelism). Pure functions.
#pragma once

#include <optional>
#include <vector>

namespace dslaunch {

// Order in which ranks are numbered:
// - kPipeData: the ranks of one stage are adjacent, numbered (stage * data + replica) * tensor +
//   part, as in DeepSpeed.
// - kDataPipe: the ranks of one replica are adjacent, numbered replica * pipeline + stage. Requires
//   tensor = 1.
enum class RankOrder { kPipeData, kDataPipe };

const char* RankOrderName(RankOrder order);  // returns the order's name, such as "pipe_data"

enum class MeshAxis { kPipeline, kData, kTensor };

// The coordinates of a rank in the mesh.
struct MeshPlace {
  int stage = 0;    // index of the rank on the pipeline axis
  int replica = 0;  // index of the rank on the data axis
  int part = 0;     // index of the rank on the tensor axis
  bool operator==(const MeshPlace&) const = default;
};

struct Mesh {
  int pipeline = 1;  // number of pipeline stages
  int data = 1;      // number of ranks with the same parameters and different samples
  int tensor = 1;    // number of ranks that share each layer and train on the same samples
  RankOrder order = RankOrder::kPipeData;

  int size() const { return pipeline * data * tensor; }
  // Returns whether ranks hold different parts of the model.
  bool cuts_model() const { return pipeline * tensor > 1; }
  MeshPlace PlaceOf(int rank) const;
  int RankOf(const MeshPlace& place) const;
  // Returns the rank at `place` and all ranks whose coordinates differ from `place` only on `axis`,
  // in ascending order of that coordinate.
  std::vector<int> RanksAlong(MeshAxis axis, MeshPlace place) const;
};

// Returns the mesh of `ranks` ranks, or nullopt if pipeline * tensor does not divide `ranks`.
// Preconditions: all numbers are at least 1, and `tensor` is 1 with kDataPipe.
std::optional<Mesh> MakeMesh(int ranks, int pipeline, int tensor = 1,
                             RankOrder order = RankOrder::kPipeData);

}  // namespace dslaunch
