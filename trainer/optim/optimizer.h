// Optimizers on LibTorch's fused kernels, or on its foreach kernels where there is no fused one: a
// handful of calls update all parameters of a group.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "dslaunch/named_tensor.h"
#include "trainer/config/optimizer_config.h"
#include "trainer/config/parameter_groups.h"
#include "trainer/optim/compressed_mean.h"
#include "trainer/optim/rank_tensor.h"

namespace dslaunch {

// Elements of a parameter that an optimizer updates: the model's own, or their fp32 copies.
struct WeightPart {
  size_t parameter = 0;  // its index
  at::Tensor weight;     // all of it in its shape, or some of it as one row
  int64_t start = 0;     // where that row begins in the parameter
};

// Replaces a tensor by its sum over all ranks.
using SumOverRanks = std::function<void(at::Tensor&)>;

// Zeros in the shape and dtype of a part, where its state is to lie.
using ZerosBeside = std::function<at::Tensor(const at::Tensor& weight)>;

// One thread.
class Optimizer {
 public:
  // What an optimizer keeps of one part, in its shape and dtype. `name` is
  // PyTorch's: "exp_avg" and "exp_avg_sq" (Adam, AdamW and LAMB; with amsgrad also
  // "max_exp_avg_sq"), "exp_avg" (Lion), "momentum_buffer" (SGD and RMSprop, with momentum), "sum"
  // (Adagrad), "square_avg" (RMSprop; if centered also "grad_avg").
  struct State {
    size_t part;  // its index
    std::string name;
    at::Tensor tensor;  // the one that is used: copying into it restores it
  };

  struct Inputs {  // as MakeOptimizer's
    const OptimizerConfig& config;
    const LrSchedule& schedule;
    const std::vector<NamedTensor>& parameters;
    const std::vector<WeightPart>& parts;
    const std::vector<ParameterInfo>& elsewhere;
    const ZerosBeside& zeros;
  };

  virtual ~Optimizer() = default;

  // One update from the gradients of all parts, in the order of MakeOptimizer's and in their
  // dtypes. They may be changed. Of a replayable optimizer, `skip` may be an fp32 scalar beside the
  // parameters: 1 where the update is not to be made.
  void Step(const std::vector<at::Tensor>& gradients, const at::Tensor& skip = {});
  // The same piece by piece: BeginStep; StepParts of all parts in their order, of as many from
  // `first` on as there are gradients; EndStep. The bits are those of Step. Without
  // takes_pieces(), because it looks at more than one part at once, all parts are one piece.
  void BeginStep(const at::Tensor& skip = {});
  void StepParts(size_t first, const std::vector<at::Tensor>& gradients);
  void EndStep();
  virtual bool takes_pieces() const { return false; }

  // Adam and AdamW: from now on what changes from update to update is memory beside the parameters,
  // so that a recorded Step can be replayed. Prepare, before each update, writes the learning rate
  // there; the number of the update counts itself.
  void MakeReplayable();
  bool replayable() const { return replayable_; }
  void Prepare();
  // Counts an update that was a replay of a Step.
  void Replayed();
  // An update that was counted was not made. Until then the schedule has counted it.
  void Skipped();

  // For the next update, of each group of the configuration in its order, and at last of the
  // parameters outside of them, which is also lr().
  virtual std::vector<double> lrs() const;
  double lr() const { return lrs().back(); }
  // From the next update on. Preconditions: as many as lrs(), and no schedule.
  virtual void SetLrs(const std::vector<double>& lrs);
  bool has_schedule() const { return !std::holds_alternative<ConstantLr>(schedule_); }

  // The names that a State may have.
  const std::vector<std::string>& state_names() const { return state_names_; }

  // The whole state is States() and two numbers: of updates made, and of those that the schedule
  // counts, which are equal unless SetUpdates changed them.
  std::vector<State> States() const;
  int64_t updates() const { return updates_; }
  int64_t scheduled_updates() const { return scheduled_updates_; }
  void SetUpdates(int64_t updates, int64_t scheduled_updates);

  // Whether the next Step takes gradients of all ranks. Of an optimizer that compresses what ranks
  // exchange it may take each rank's own: Step is then collective.
  virtual bool TakesReducedGradients() const { return true; }
  // What it keeps beside States(): errors of compression, and numbers of its phases.
  virtual std::vector<RankTensor> RankTensors() const { return {}; }
  // These as at the start, with the weights as they are: where a checkpoint does not have them.
  virtual void Restart() {}

 protected:
  struct Group {
    double configured_lr = 0;
    double lr = 0;  // of the next update
    double weight_decay = 0;
    bool empty = true;                           // on all ranks
    std::vector<size_t> places;                  // of its parts among all
    std::vector<size_t> indices;                 // of their parameters
    std::vector<at::Tensor> parameters;          // the parts
    std::vector<std::vector<at::Tensor>> state;  // of each of state_names_, one per part
    // Of a replayable optimizer: fp32 scalars on the parameters' device.
    at::Tensor lr_on_device, updates_on_device;
  };

  Optimizer(const Inputs& inputs, std::vector<std::string> state_names);

  // With updates() already counting this one, and without autograd. With takes_pieces(), `group`
  // may be some parts of one.
  virtual void Update(Group& group, const std::vector<at::Tensor>& gradients) = 0;
  // How many updates were made, as the kernel is to have it.
  virtual double UpdateNumber(int64_t update) const { return static_cast<double>(update); }
  // After SetUpdates.
  virtual void Resumed() {}
  // Where other ranks have parts of the group, but this one has none.
  virtual void UpdateElsewhere(Group&) {}

  at::Tensor skip_;         // of this update
  OptimizerConfig config_;  // betas as the schedule has them
  std::vector<Group> groups_;

 private:
  void ApplySchedule();
  static Group PartsOf(const Group& group, size_t begin, size_t end);

  LrSchedule schedule_;
  std::vector<std::string> state_names_;
  bool replayable_ = false;
  int64_t updates_ = 0;
  int64_t scheduled_updates_ = 0;
};

// `parts` are of `parameters`, whose names and dimensions choose their groups; their values are not
// looked at. With `sum`, the ranks together have all parts of the parameters, and call Step
// together; without, each part is a whole parameter. State starts at zero (Adagrad's at its initial
// value). `elsewhere`: parameters of the model that this optimizer does not update: frozen ones,
// and those of which other optimizers of the same run have all. `zeros`: null:
// state lies where its part does. Throws kBadInput where a group of `config` takes none of all
// these.
std::unique_ptr<Optimizer> MakeOptimizer(const OptimizerConfig& config, const LrSchedule& schedule,
                                         const std::vector<NamedTensor>& parameters,
                                         const std::vector<WeightPart>& parts,
                                         SumOverRanks sum = nullptr,
                                         const std::vector<ParameterInfo>& elsewhere = {},
                                         std::shared_ptr<CompressedMean> mean = nullptr,
                                         const ZerosBeside& zeros = nullptr);
// Of whole parameters, which are updated themselves.
std::unique_ptr<Optimizer> MakeOptimizer(const OptimizerConfig& config, const LrSchedule& schedule,
                                         const std::vector<NamedTensor>& parameters);

// "AdamW". Optimizers whose states have different meanings have different names.
const char* OptimizerTypeName(OptimizerConfig::Type type);

}  // namespace dslaunch
