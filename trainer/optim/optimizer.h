// Provides optimizers that use LibTorch's fused kernels, or its foreach kernels if there is no
// fused kernel. A few calls update all parameters of a group.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "dslaunch/named_tensor.h"
#include "dslaunch/shard.h"
#include "trainer/config/optimizer_config.h"
#include "trainer/config/parameter_groups.h"
#include "trainer/config/scheduler_config.h"
#include "trainer/optim/compressed_mean.h"
#include "trainer/optim/rank_tensor.h"

namespace dslaunch {

// Elements of a parameter that an optimizer updates: either elements of the model's parameter, or
// of the parameter's fp32 copy.
struct WeightPart {
  size_t parameter = 0;  // index of the parameter in the list of all parameters
  // Tensor to update: a whole parameter in its shape, or a slice in one dimension.
  at::Tensor weight;
  Shard shard;  // elements of the parameter that `weight` holds
};

// Replaces this rank's values, [rows, parameters], by their sums over the ranks that hold parts of
// each parameter.
using SumOverRanks = std::function<void(at::Tensor&)>;

// Returns zeros in the shape and dtype of the part `weight`, on the device of the part's state.
using ZerosBeside = std::function<at::Tensor(const at::Tensor& weight)>;

// Updates weights from gradients. Not thread-safe.
class Optimizer {
 public:
  // A tensor of the state of a part, in the part's shape and dtype. `name` is PyTorch's name:
  // "exp_avg" and "exp_avg_sq" (Adam, AdamW and LAMB; with amsgrad also "max_exp_avg_sq"),
  // "exp_avg" (Lion), "momentum_buffer" (SGD and RMSprop, with momentum), "sum" (Adagrad),
  // "square_avg" (RMSprop; if centered also "grad_avg").
  struct State {
    size_t part;  // index of the part among the constructor's parts
    std::string name;
    at::Tensor tensor;  // state itself, not a copy, so copying into the tensor restores the state
  };

  struct Inputs {  // arguments that MakeOptimizer passes to an optimizer
    const OptimizerConfig& config;
    const LrSchedule& schedule;
    const std::vector<NamedTensor>& parameters;
    const std::vector<WeightPart>& parts;
    const std::vector<ParameterInfo>& elsewhere;
    const ZerosBeside& zeros;
  };

  virtual ~Optimizer() = default;

  // Updates all parts from `gradients`, which have the order and dtypes of MakeOptimizer's parts.
  // May modify `gradients`. For a replayable optimizer, `skip` may be an fp32 scalar on the
  // parameters' device; if its value is 1, the update is not made.
  void Step(const std::vector<at::Tensor>& gradients, const at::Tensor& skip = {});
  // Begins a Step that is performed in pieces and gives the same bits. Call StepParts for all parts
  // in order, then EndStep.
  void BeginStep(const at::Tensor& skip = {});
  // Updates the parts from index `first` on, one for each of `gradients`.
  void StepParts(size_t first, const std::vector<at::Tensor>& gradients);
  // Ends the step that BeginStep began.
  void EndStep();
  // Returns whether StepParts may be called several times in a step. False if the optimizer reads
  // several parts at once; one call must then have the gradients of all parts.
  virtual bool takes_pieces() const { return false; }

  // Makes Adam or AdamW keep everything that changes between updates in memory on the parameters'
  // device, so that a recorded Step can be replayed. Step then increments the update number in that
  // memory.
  void MakeReplayable();
  // Returns whether MakeReplayable was called.
  bool replayable() const { return replayable_; }
  // Writes the learning rate to the memory of a replayable optimizer. Call it before each update.
  void Prepare();
  // Counts an update that replayed a recorded Step.
  void Replayed();
  // Decrements the counts for an update that was counted but skipped. The schedule counts the
  // update until this call.
  void Skipped();

  // Returns the learning rates of the next update, one for each group of the configuration in
  // order, then the rate of the parameters outside of the groups, which is lr().
  virtual std::vector<double> lrs() const;
  double lr() const { return lrs().back(); }
  // Sets the learning rates, beginning with the next update. Precondition: `lrs` has the size of
  // lrs(), and there is no schedule.
  virtual void SetLrs(const std::vector<double>& lrs);
  bool has_schedule() const { return !std::holds_alternative<ConstantLr>(schedule_); }

  // Returns the names that a State may have.
  const std::vector<std::string>& state_names() const { return state_names_; }

  // Returns the state tensors of all parts. With updates() and scheduled_updates() they are the
  // whole state.
  std::vector<State> States() const;
  // Returns the number of updates made.
  int64_t updates() const { return updates_; }
  // Returns the number of updates that the schedule has counted, which equals updates() unless
  // SetUpdates set different values.
  int64_t scheduled_updates() const { return scheduled_updates_; }
  // Sets both numbers, to continue a saved run.
  void SetUpdates(int64_t updates, int64_t scheduled_updates);

  // Returns whether the next Step expects gradients that are reduced over all ranks. An optimizer
  // that compresses the exchange may expect each rank's own gradients; Step is collective in that
  // case.
  virtual bool TakesReducedGradients() const { return true; }
  // Returns the additional state: compression errors, and numbers of the optimizer's phases.
  virtual std::vector<RankTensor> RankTensors() const { return {}; }
  // Resets the RankTensors to their initial values and keeps the weights. Used if a checkpoint
  // lacks RankTensors.
  virtual void Restart() {}

 protected:
  struct Group {
    double configured_lr = 0;
    double lr = 0;  // learning rate of the group in the next update
    double weight_decay = 0;
    bool empty = true;                   // true if the group has no parameter on any rank
    std::vector<size_t> places;          // indices of the group's parts among all parts
    std::vector<size_t> indices;         // index of the parameter of each part
    std::vector<at::Tensor> parameters;  // weights of the group's parts
    // State of the parts: for each of state_names_, a list with one tensor per part.
    std::vector<std::vector<at::Tensor>> state;
    // Scalars in fp32 on the parameters' device; defined only if the optimizer is replayable.
    at::Tensor lr_on_device, updates_on_device;
  };

  Optimizer(const Inputs& inputs, std::vector<std::string> state_names);

  // Updates the parts of a group without autograd. updates() already includes this update. If
  // takes_pieces(), `group` may have only some parts of a group.
  virtual void Update(Group& group, const std::vector<at::Tensor>& gradients) = 0;
  // Returns the number that the kernel gets for update number `update`.
  virtual double UpdateNumber(int64_t update) const { return static_cast<double>(update); }
  // Called at the end of SetUpdates.
  virtual void Resumed() {}
  // Takes this rank's part in the collective operations of an update of a group of which only other
  // ranks have parts.
  virtual void UpdateElsewhere(Group&) {}

  at::Tensor skip_;         // argument `skip` of the current update
  OptimizerConfig config_;  // configuration, with the betas that the schedule has set
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

// Creates an optimizer of `parts`, which are parts of `parameters`. The parameters' names and
// dimensions select their groups; their values are not used. With `sum`, the ranks together have
// all parts of the parameters and must call Step together; without `sum`, each part is a whole
// parameter. State starts at zero (Adagrad's at its initial value). `elsewhere` are parameters of
// the model that this optimizer does not update: frozen parameters, and parameters that only
// optimizers of other ranks update. If `zeros` is null, state is on the device of its part. Throws
// kBadInput if a group of `config` matches no parameter.
std::unique_ptr<Optimizer> MakeOptimizer(const OptimizerConfig& config, const LrSchedule& schedule,
                                         const std::vector<NamedTensor>& parameters,
                                         const std::vector<WeightPart>& parts,
                                         SumOverRanks sum = nullptr,
                                         const std::vector<ParameterInfo>& elsewhere = {},
                                         std::shared_ptr<CompressedMean> mean = nullptr,
                                         const ZerosBeside& zeros = nullptr);
// Creates an optimizer that updates `parameters` as a whole and in place.
std::unique_ptr<Optimizer> MakeOptimizer(const OptimizerConfig& config, const LrSchedule& schedule,
                                         const std::vector<NamedTensor>& parameters);

// Returns the name of a type, such as "AdamW". Types whose states have different meanings have
// different names.
const char* OptimizerTypeName(OptimizerConfig::Type type);

}  // namespace dslaunch
