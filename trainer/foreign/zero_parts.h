// Finds the parts of parameters in the flat tensors that DeepSpeed saves for each rank.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "trainer/foreign/archive_field.h"
#include "trainer/foreign/deepspeed_files.h"
#include "trainer/foreign/deepspeed_model.h"
#include "trainer/foreign/foreign_checkpoint.h"
#include "trainer/foreign/plan_tensors.h"

namespace dslaunch {

// The elements of one parameter in a flat tensor of a rank.
struct Fragment {
  std::string name;
  int64_t start = 0;  // index of the fragment's first element in the flat tensor
  int64_t elements = 0;
};

// The parts of a group's parameters that one rank has.
struct RankCut {
  std::vector<Fragment> fragments;  // parameters that have elements on this rank
  int64_t used = 0;   // number of elements of the flat tensor without padding at its end
  int64_t whole = 0;  // number of elements of the flat tensor including padding
};

// Returns the cut of stages 1 and 2: the group's parameters, each followed by its padding, are
// concatenated and divided into equal parts, one for each rank, with an even number of elements.
// `paddings` is empty or has an entry for each parameter. Precondition: 0 <= rank < world_size.
// Throws kBadInput if the group has 2^60 elements or more. Pure.
RankCut CutGroup(const std::vector<NamedShape>& parameters, const std::vector<int64_t>& paddings,
                 int64_t rank, int64_t world_size);

// Returns the cut of stage 3: each parameter is divided into equal parts, and the flat tensor has
// this rank's part of each parameter in turn. Precondition: 0 <= rank < world_size. Throws
// kBadInput if the group has 2^60 elements or more. Pure.
RankCut CutEachParameter(const std::vector<NamedShape>& parameters, int64_t rank,
                         int64_t world_size);

// The flat tensors of one group on one rank. The key "" is the fp32 weights; the other keys name
// tensors of the optimizer's state.
using FlatTensors = std::map<std::string, ArchivedTensor>;

// Returns the weights, and the tensors of `state` that have as many elements as the weights. Adds
// the keys of smaller tensors to `unread`. Throws kBadInput if the weights are not a flat tensor.
FlatTensors FlatTensorsOf(const ArchiveField& weights, const std::optional<ArchiveField>& state,
                          std::set<std::string>* unread);

// Collects the parts of parameters from the files of the ranks.
class ZeroParts {
 public:
  explicit ZeroParts(const std::vector<std::vector<NamedShape>>& groups);

  // Adds a rank's parts of parameters of the constructor's groups. Add ranks in ascending order.
  // `group` names the flat tensors in errors. Throws kBadInput if a flat tensor differs in size
  // from the cut.
  void Add(const RankCut& cut, const FlatTensors& flat, const ArchiveField& group);

  // Adds each parameter whose parts are complete to the plan, and returns the names of all
  // parameters. Throws kBadInput if parts of a parameter are missing, unless `missing` states that
  // files are missing.
  std::set<std::string> Finish(bool missing, ForeignCheckpoint* plan) const;

 private:
  struct Part {
    std::string dtype;
    std::vector<Piece> pieces;
    int64_t elements = 0;
  };
  void AddPiece(const Fragment& fragment, const ArchivedTensor& tensor, const ArchiveField& group,
                Part* part) const;

  std::vector<NamedShape> parameters_;
  // The collected parts, keyed by parameter, then by the key of FlatTensors.
  std::map<std::string, std::map<std::string, Part>> parts_;
};

// Returns the ranks below `count` that have no file.
std::vector<int64_t> RanksWithout(const std::map<int64_t, std::string>& files, int64_t count);

// Adds the model files of stage 3 to the plan, and the frozen parameters, of which each file has a
// part.
void AddModelFilesOfStage3(const DeepSpeedModel& model, const DeepSpeedFiles& files,
                           int64_t world_size, ForeignCheckpoint* plan);

}  // namespace dslaunch
