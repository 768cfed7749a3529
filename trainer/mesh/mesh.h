// The ranks of a job as a grid of three axes: pipeline stages, replicas (data parallelism), and
// parts of parameters (tensor parallelism). Pure.
#pragma once

#include <optional>
#include <vector>

namespace dslaunch {

// Which ranks have adjacent numbers:
// - kPipeData: the ranks of one stage, as in DeepSpeed: (stage * data + replica) * tensor + part;
// - kDataPipe: those of one replica, replica * pipeline + stage; without tensor parallelism.
enum class RankOrder { kPipeData, kDataPipe };

const char* RankOrderName(RankOrder order);  // "pipe_data"

enum class MeshAxis { kPipeline, kData, kTensor };

// The coordinates of a rank.
struct MeshPlace {
  int stage = 0;    // on the pipeline axis
  int replica = 0;  // on the data axis
  int part = 0;     // on the tensor axis
  bool operator==(const MeshPlace&) const = default;
};

struct Mesh {
  int pipeline = 1;  // stages of the model
  int data = 1;      // ranks that hold the same parameters and train on different samples
  int tensor = 1;    // ranks that share each layer of a stage, and train on the same samples
  RankOrder order = RankOrder::kPipeData;

  int size() const { return pipeline * data * tensor; }
  // Whether ranks hold different parts of the model.
  bool cuts_model() const { return pipeline * tensor > 1; }
  MeshPlace PlaceOf(int rank) const;
  int RankOf(const MeshPlace& place) const;
  // Returns the ranks whose coordinates differ from `place` on `axis` alone, including the rank at
  // `place`, ascending by that coordinate.
  std::vector<int> RanksAlong(MeshAxis axis, MeshPlace place) const;
};

// Returns the mesh of `ranks` ranks, or nullopt if pipeline * tensor does not divide `ranks`.
// Preconditions: all are at least 1, and with kDataPipe `tensor` is 1.
std::optional<Mesh> MakeMesh(int ranks, int pipeline, int tensor = 1,
                             RankOrder order = RankOrder::kPipeData);

}  // namespace dslaunch
