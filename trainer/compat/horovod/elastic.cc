#include <ATen/ATen.h>

#include <bit>
#include <map>
#include <optional>
#include <set>
#include <type_traits>
#include <utility>

#include "dslaunch/horovod_elastic.h"
#include "trainer/base/log.h"
#include "trainer/base/rank_files.h"
#include "trainer/base/stop.h"
#include "trainer/base/train_error.h"
#include "trainer/compat/horovod/commit_folder.h"
#include "trainer/compat/horovod/optimizer_state.h"

namespace dslaunch::horovod::elastic {
namespace {

constexpr char kOptimizerNumbers[] = "optimizer.numbers";

struct NamedScalar {
  std::string name;
  std::variant<int64_t*, double*> value;
};

struct NamedSampler {
  std::string name;
  ElasticSampler* sampler;
};

void CheckValues(const std::vector<NamedValue>& values) {
  std::set<std::string> names;
  for (const auto& [name, value] : values) {
    if (name.empty() || !names.insert(name).second) {
      throw TrainError(ExitCode::kUsage, "elastic::State: every value needs a unique name; '" +
                                             name +
                                             (name.empty() ? "' is empty" : "' is used twice"));
    }
    if (std::visit([](const auto* pointer) { return pointer == nullptr; }, value))
      throw TrainError(ExitCode::kUsage, "elastic::State: the value '" + name + "' is null");
  }
}

std::string FolderOf(const StateOptions& options) {
  if (!options.folder.empty()) return options.folder;
  const std::string node_dir = NodeDir();
  return node_dir.empty() ? "" : node_dir + "/elastic";
}

// Returns a tensor's dtype and shape as text, such as "Float [32, 20]".
std::string Described(const at::Tensor& tensor) {
  return c10::str(tensor.scalar_type(), " ", tensor.sizes());
}

}  // namespace

HostsUpdatedInterrupt::HostsUpdatedInterrupt()
    : TrainError(
          ExitCode::kPreempted,
          "the launcher has asked the ranks to stop: a node is joining, or the job is ending") {}

struct State::Impl {
  Impl(torch::nn::Module& module, torch::optim::Optimizer& its_optimizer,
       const std::vector<NamedValue>& values, const StateOptions& options)
      : model(module), optimizer(its_optimizer) {
    CheckValues(values);
    for (const auto& [name, value] : values) {
      if (const auto* integer = std::get_if<int64_t*>(&value)) scalars.push_back({name, *integer});
      if (const auto* number = std::get_if<double*>(&value)) scalars.push_back({name, *number});
      if (const auto* sampler = std::get_if<ElasticSampler*>(&value))
        samplers.push_back({name, *sampler});
    }
    OptimizerNumbers(optimizer);  // throws if the optimizer is not supported
    const std::string path = FolderOf(options);
    // The cross rank of a node's first rank is the node's position, which selects the node's
    // subfolder.
    if (LocalRank() == 0 && !path.empty()) folder.emplace(path, CrossRank());
    CatchStopSignals();
  }

  at::Tensor ScalarValues() const;
  void SetScalars(const at::Tensor& values) const;
  std::vector<NamedTensor> Values() const;
  void Load(const std::vector<NamedTensor>& values) const;
  std::vector<CommitId> IdsByRank() const;
  void Keep(const CommitId& id);
  void Begin();
  void SyncAll();
  void ShareRecords() const;

  torch::nn::Module& model;
  torch::optim::Optimizer& optimizer;
  std::vector<NamedScalar> scalars;
  std::vector<NamedSampler> samplers;
  std::optional<CommitFolder> folder;  // folder of commits; set only on the first rank of each node
  std::vector<std::function<void()>> callbacks;
  SavedCommit commit;  // last commit; its id is {} before the first commit
};

// Returns the scalars of both types in the order of `scalars`. They are stored as bits, so the
// values are exact.
at::Tensor State::Impl::ScalarValues() const {
  at::Tensor values = at::empty({static_cast<int64_t>(scalars.size())}, at::kLong);
  int64_t* next = values.mutable_data_ptr<int64_t>();
  for (const NamedScalar& scalar : scalars) {
    *next++ =
        std::visit([](const auto* value) { return std::bit_cast<int64_t>(*value); }, scalar.value);
  }
  return values;
}

void State::Impl::SetScalars(const at::Tensor& values) const {
  const int64_t* next = values.const_data_ptr<int64_t>();
  for (const NamedScalar& scalar : scalars) {
    std::visit(
        [&](auto* value) { *value = std::bit_cast<std::remove_pointer_t<decltype(value)>>(*next); },
        scalar.value);
    ++next;
  }
}

// Returns a copy of the whole state.
std::vector<NamedTensor> State::Impl::Values() const {
  std::vector<NamedTensor> values;
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    values.push_back({name, tensor.detach().clone(at::MemoryFormat::Contiguous)});
  };
  for (const auto& [name, tensor] : NamedParameters(model)) {
    if (tensor.defined()) add("model." + name, tensor);
  }
  const std::vector<double> numbers = OptimizerNumbers(optimizer);
  add(kOptimizerNumbers, at::tensor(numbers, at::kDouble));
  int count = 0;
  for (const at::Tensor& tensor : SetOptimizerNumbers(optimizer, numbers))
    add("optimizer." + std::to_string(count++), tensor);
  const at::Tensor scalar_values = ScalarValues();
  for (size_t i = 0; i < scalars.size(); ++i) {
    add((std::holds_alternative<double*>(scalars[i].value) ? "double." : "integer.") +
            scalars[i].name,
        scalar_values[static_cast<int64_t>(i)]);
  }
  for (const auto& [name, sampler] : samplers) {
    add("sampler." + name, sampler->Processed());
    add("sampler_epoch." + name, at::scalar_tensor(sampler->epoch(), at::kLong));
  }
  return values;
}

// Sets the state to `values`. If a tensor of the model or a scalar does not fit, throws without
// changing the state.
void State::Impl::Load(const std::vector<NamedTensor>& values) const {
  const at::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> saved;
  for (const auto& [name, tensor] : values) saved[name] = tensor;
  const auto refuse = [](const std::string& name, const std::string& problem) {
    throw TrainError(ExitCode::kBadInput,
                     "the commit is not one of this program: " + name + " " + problem);
  };
  const auto find = [&](const std::string& name) {
    const auto found = saved.find(name);
    if (found == saved.end()) refuse(name, "is missing");
    return found->second;
  };
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;
  const auto plan = [&](const std::string& name, const at::Tensor& to) {
    const at::Tensor from = find(name);
    if (from.sizes() != to.sizes() || from.scalar_type() != to.scalar_type())
      refuse(name, "is " + Described(from) + " there and " + Described(to) + " here");
    copies.emplace_back(to, from);
  };
  for (const auto& [name, tensor] : NamedParameters(model)) {
    if (tensor.defined()) plan("model." + name, tensor.detach());
  }
  const at::Tensor scalar_values = ScalarValues();
  for (size_t i = 0; i < scalars.size(); ++i) {
    plan((std::holds_alternative<double*>(scalars[i].value) ? "double." : "integer.") +
             scalars[i].name,
         scalar_values[static_cast<int64_t>(i)]);
  }
  std::vector<std::pair<at::Tensor, at::Tensor>> records;
  for (const auto& [name, sampler] : samplers) {
    records.emplace_back(at::empty({}, at::kLong), sampler->Processed());
    plan("sampler_epoch." + name, records.back().first);
    plan("sampler." + name, records.back().second);
  }
  const at::Tensor numbers = find(kOptimizerNumbers);
  if (numbers.scalar_type() != at::kDouble) refuse(kOptimizerNumbers, "are no numbers");
  const double* const first = numbers.const_data_ptr<double>();
  int count = 0;
  for (at::Tensor& tensor : SetOptimizerNumbers(optimizer, {first, first + numbers.numel()}))
    plan("optimizer." + std::to_string(count++), tensor);
  for (auto& [to, from] : copies) to.copy_(from);
  SetScalars(scalar_values);
  for (size_t i = 0; i < samplers.size(); ++i) {
    const auto& [epoch, processed] = records[i];
    samplers[i].sampler->Load(epoch.item<int64_t>(), processed);
  }
}

std::vector<CommitId> State::Impl::IdsByRank() const {
  const at::Tensor all =
      Allgather(at::tensor({commit.id.generation, commit.id.number}, at::kLong).view({1, 2}),
                {.name = "elastic.commits"});
  std::vector<CommitId> ids;
  const int64_t* const numbers = all.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < all.size(0); ++i) ids.push_back({numbers[2 * i], numbers[2 * i + 1]});
  return ids;
}

void State::Impl::Keep(const CommitId& id) {
  commit = {id, Values()};
  if (folder) folder->Write(commit);
}

void State::Impl::Begin() {
  if (folder) {
    if (auto saved = folder->ReadNewest()) {
      Load(saved->values);
      commit = *std::move(saved);
    }
  }
  const std::vector<CommitId> ids = IdsByRank();
  const int newest = NewestRank(ids);
  if (const CommitId& id = ids.at(static_cast<size_t>(newest)); id != CommitId()) {
    if (Rank() == 0) {
      PrintError("elastic: begins from commit " + ToText(id) + " of rank " +
                 std::to_string(newest));
    }
    for (const std::function<void()>& callback : callbacks) callback();
  }
  SyncAll();
}

void State::Impl::SyncAll() {
  const std::vector<CommitId> ids = IdsByRank();
  const int root = NewestRank(ids);
  BroadcastParameters(NamedParameters(model), root);
  BroadcastOptimizerState(optimizer, root);
  if (!scalars.empty()) {
    at::Tensor values = ScalarValues();
    Broadcast_(values, root, {.name = "elastic.scalars"});
    SetScalars(values);
  }
  // If a rank has an older commit, the samples that it recorded were not used to train the current
  // model, so they do not count.
  const bool counts = ids.at(static_cast<size_t>(Rank())) == ids.at(static_cast<size_t>(root));
  for (const auto& [name, sampler] : samplers) {
    at::Tensor epoch = at::full({1}, sampler->epoch(), at::kLong);
    Broadcast_(epoch, root, {.name = "elastic.sampler_epoch." + name});
    at::Tensor processed = sampler->Processed();
    if (!counts) processed.zero_();
    Allreduce_(processed, {.name = "elastic.sampler." + name, .op = Op::kMax});
    sampler->Load(epoch.item<int64_t>(), processed);
  }
  Keep({ids.at(static_cast<size_t>(root)).generation + 1, 0});
}

// Shares the records of samples: on each rank, records the samples that any rank has processed.
// Collective.
void State::Impl::ShareRecords() const {
  for (const auto& [name, sampler] : samplers) {
    const at::Tensor all =
        Allreduce(sampler->Processed(), {.name = "elastic.sampler." + name, .op = Op::kMax})
            .nonzero();
    const int64_t* const first = all.const_data_ptr<int64_t>();
    sampler->RecordIndices({first, first + all.numel()});
  }
}

State::State(torch::nn::Module& model, torch::optim::Optimizer& optimizer,
             const std::vector<NamedValue>& values, const StateOptions& options)
    : impl_(std::make_unique<Impl>(model, optimizer, values, options)) {}
State::~State() = default;

void State::Commit() {
  impl_->ShareRecords();
  impl_->Keep({impl_->commit.id.generation, impl_->commit.id.number + 1});
  CheckHostUpdates();
}

void State::CheckHostUpdates() {
  const bool own = CurrentStopRequest(std::nullopt) != StopRequest::kNone;
  const at::Tensor any =
      Allreduce(at::full({1}, own ? 1 : 0, at::kLong), {.name = "elastic.stop", .op = Op::kMax});
  if (any.item<int64_t>() != 0) throw HostsUpdatedInterrupt();
}

void State::Restore() {
  if (impl_->commit.id == CommitId()) {
    throw TrainError(ExitCode::kUsage,
                     "elastic::State::Restore: nothing was committed yet; call it within Run, or "
                     "after Commit or Sync");
  }
  impl_->Load(impl_->commit.values);
}

void State::Sync() { impl_->SyncAll(); }

void State::RegisterResetCallbacks(std::vector<std::function<void()>> callbacks) {
  for (auto& callback : callbacks) impl_->callbacks.push_back(std::move(callback));
}

void Run(State& state, const std::function<void(State&)>& fn) {
  state.impl_->Begin();
  try {
    fn(state);
  } catch (const TrainError& error) {
    const bool others_are_gone =
        error.code() == ExitCode::kUnavailable || error.code() == ExitCode::kTimedOut;
    if (!others_are_gone) throw;
    throw TrainError(error.code(),
                     std::string(error.what()) + "; the last commit is " +
                         ToText(state.impl_->commit.id) +
                         ", from which the job's next attempt begins (--max_restarts)");
  }
}

}  // namespace dslaunch::horovod::elastic
