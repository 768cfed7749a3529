// Implements the exchange functions of dslaunch/horovod.h.
#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "trainer/base/train_error.h"
#include "trainer/compat/horovod/context.h"

namespace dslaunch::horovod {
namespace {

[[noreturn]] void Refuse(Kind kind, const std::string& name, const std::string& problem) {
  throw TrainError(ExitCode::kUsage, std::string(Name(kind)) + " of '" + name + "': " + problem);
}

void CheckTensor(Kind kind, const std::string& name, const at::Tensor& tensor) {
  if (!tensor.defined()) Refuse(kind, name, "the tensor is undefined");
  if (!tensor.device().is_cpu() || tensor.layout() != at::kStrided) {
    Refuse(kind, name,
           c10::str("the tensor is ", tensor.layout(), " on ", tensor.device(),
                    "; ranks exchange dense tensors on the CPU"));
  }
  if (kind != Kind::kAllreduce) return;
  switch (tensor.scalar_type()) {
    case at::kFloat:
    case at::kDouble:
    case at::kHalf:
    case at::kBFloat16:
    case at::kByte:
    case at::kChar:
    case at::kInt:
    case at::kLong:
      return;
    default:
      Refuse(kind, name,
             c10::str("values of ", tensor.scalar_type(),
                      " cannot be reduced; supported: float, double, half, bfloat16, uint8, int8, "
                      "int32 and int64"));
  }
}

at::ScalarType TravelDtype(const at::Tensor& tensor, Compression compression) {
  const bool wide = tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble;
  if (compression == Compression::kNone || !wide) return tensor.scalar_type();
  return compression == Compression::kFp16 ? at::kHalf : at::kBFloat16;
}

Handle Submit(Kind kind, const ProcessSet& set, std::shared_ptr<Handle::State> state) {
  Request& request = state->request;
  request.kind = kind;
  if (request.name.empty()) request.name = Context::Get().NewName(kind);
  for (const at::Tensor& tensor : state->tensors) {
    CheckTensor(kind, request.name, tensor);
    request.tensors.push_back({tensor.sizes().vec(), tensor.scalar_type()});
  }
  Context::Get().ThreadOf(set).Submit(state);
  return Handle(std::move(state));
}

// Submits a reduction and returns its handle. If `in_place`, the results are written to `tensors`.
Handle SubmitReduce(const std::vector<at::Tensor>& tensors, const ReduceOptions& options,
                    bool in_place) {
  const at::NoGradGuard no_grad;
  if (tensors.empty()) Refuse(Kind::kAllreduce, options.name, "the group has no tensor");
  auto state = std::make_shared<Handle::State>();
  state->request.name = options.name;
  state->request.op = options.op;
  state->request.prescale_factor = options.prescale_factor;
  state->request.postscale_factor = options.postscale_factor;
  for (const at::Tensor& tensor : tensors) {
    CheckTensor(Kind::kAllreduce, options.name, tensor);
    const at::ScalarType travels = TravelDtype(tensor, options.compression);
    const bool as_it_is = in_place && travels == tensor.scalar_type() && tensor.is_contiguous();
    state->tensors.push_back(
        as_it_is ? tensor.detach()
                 : tensor.detach().to(travels, /*non_blocking=*/false, /*copy=*/true).contiguous());
    if (as_it_is) {
      state->targets.emplace_back();
    } else if (in_place) {
      state->targets.push_back(tensor.detach());
    } else {
      const bool cast = travels != tensor.scalar_type();
      state->targets.push_back(
          cast ? at::empty(tensor.sizes(), tensor.options().requires_grad(false)) : at::Tensor());
    }
  }
  return Submit(Kind::kAllreduce, options.process_set, std::move(state));
}

Handle SubmitBroadcast(const at::Tensor& tensor, int root, const ExchangeOptions& options,
                       bool in_place) {
  const at::NoGradGuard no_grad;
  const Members& members = Context::Get().Find(options.process_set);
  const auto found = std::ranges::find(members.ranks, root);
  if (found == members.ranks.end()) {
    Refuse(Kind::kBroadcast, options.name,
           "the root, rank " + std::to_string(root) + ", is not among the ranks that take part");
  }
  auto state = std::make_shared<Handle::State>();
  state->request.name = options.name;
  state->request.root = static_cast<int>(found - members.ranks.begin());
  CheckTensor(Kind::kBroadcast, options.name, tensor);
  const bool as_it_is = in_place && tensor.is_contiguous();
  state->tensors = {as_it_is ? tensor.detach()
                             : tensor.detach().clone(at::MemoryFormat::Contiguous)};
  state->targets = {in_place && !as_it_is ? tensor.detach() : at::Tensor()};
  return Submit(Kind::kBroadcast, options.process_set, std::move(state));
}

}  // namespace

bool Poll(const Handle& handle) { return handle.state_->IsDone(); }

std::vector<at::Tensor> SynchronizeGroup(const Handle& handle) { return handle.state_->Wait(); }

at::Tensor Synchronize(const Handle& handle) { return SynchronizeGroup(handle).at(0); }

Handle AllreduceAsync(const at::Tensor& tensor, const ReduceOptions& options) {
  return SubmitReduce({tensor}, options, /*in_place=*/false);
}
Handle AllreduceAsync_(at::Tensor& tensor, const ReduceOptions& options) {
  return SubmitReduce({tensor}, options, /*in_place=*/true);
}
at::Tensor Allreduce(const at::Tensor& tensor, const ReduceOptions& options) {
  return Synchronize(AllreduceAsync(tensor, options));
}
void Allreduce_(at::Tensor& tensor, const ReduceOptions& options) {
  Synchronize(AllreduceAsync_(tensor, options));
}

Handle GroupedAllreduceAsync(const std::vector<at::Tensor>& tensors, const ReduceOptions& options) {
  return SubmitReduce(tensors, options, /*in_place=*/false);
}
Handle GroupedAllreduceAsync_(const std::vector<at::Tensor>& tensors,
                              const ReduceOptions& options) {
  return SubmitReduce(tensors, options, /*in_place=*/true);
}
std::vector<at::Tensor> GroupedAllreduce(const std::vector<at::Tensor>& tensors,
                                         const ReduceOptions& options) {
  return SynchronizeGroup(GroupedAllreduceAsync(tensors, options));
}

Handle AllgatherAsync(const at::Tensor& tensor, const ExchangeOptions& options) {
  const at::NoGradGuard no_grad;
  auto state = std::make_shared<Handle::State>();
  state->request.name = options.name;
  CheckTensor(Kind::kAllgather, options.name, tensor);
  if (tensor.dim() == 0) {
    Refuse(Kind::kAllgather, options.name,
           "the tensor has no dimension along which those of the ranks could be joined");
  }
  state->tensors = {tensor.detach().contiguous()};
  return Submit(Kind::kAllgather, options.process_set, std::move(state));
}
at::Tensor Allgather(const at::Tensor& tensor, const ExchangeOptions& options) {
  return Synchronize(AllgatherAsync(tensor, options));
}

Handle BroadcastAsync(const at::Tensor& tensor, int root_rank, const ExchangeOptions& options) {
  return SubmitBroadcast(tensor, root_rank, options, /*in_place=*/false);
}
Handle BroadcastAsync_(at::Tensor& tensor, int root_rank, const ExchangeOptions& options) {
  return SubmitBroadcast(tensor, root_rank, options, /*in_place=*/true);
}
at::Tensor Broadcast(const at::Tensor& tensor, int root_rank, const ExchangeOptions& options) {
  return Synchronize(BroadcastAsync(tensor, root_rank, options));
}
void Broadcast_(at::Tensor& tensor, int root_rank, const ExchangeOptions& options) {
  Synchronize(BroadcastAsync_(tensor, root_rank, options));
}

AlltoallResult Alltoall(const at::Tensor& tensor, const std::vector<int64_t>& splits,
                        const ExchangeOptions& options) {
  const at::NoGradGuard no_grad;
  const Members& members = Context::Get().Find(options.process_set);
  const auto ranks = static_cast<int64_t>(members.ranks.size());
  auto state = std::make_shared<Handle::State>();
  state->request.name = options.name;
  CheckTensor(Kind::kAlltoall, options.name, tensor);
  const int64_t rows = tensor.dim() == 0 ? 0 : tensor.size(0);
  state->request.splits = splits;
  if (splits.empty()) {
    if (rows % ranks != 0) {
      Refuse(Kind::kAlltoall, options.name,
             std::to_string(rows) + " rows cannot be parted equally among " +
                 std::to_string(ranks) + " ranks; give splits");
    }
    state->request.splits.assign(static_cast<size_t>(ranks), rows / ranks);
  }
  int64_t sum = 0;
  bool negative = false;
  for (const int64_t split : state->request.splits) {
    sum += split;
    negative = negative || split < 0;
  }
  if (negative || sum != rows || static_cast<int64_t>(state->request.splits.size()) != ranks) {
    Refuse(Kind::kAlltoall, options.name,
           "the splits must be one number for each of the " + std::to_string(ranks) +
               " ranks, at least 0, and add up to the tensor's " + std::to_string(rows) + " rows");
  }
  state->tensors = {tensor.detach().contiguous()};
  const Handle handle = Submit(Kind::kAlltoall, options.process_set, state);
  at::Tensor received = Synchronize(handle);
  const MutexLock lock(state->mutex);
  return {std::move(received), state->received_splits};
}

int Join() { return Context::Get().ThreadOf({}).Join(); }

void Barrier(const ProcessSet& set) {
  SynchronizeGroup(Submit(Kind::kBarrier, set, std::make_shared<Handle::State>()));
}

std::vector<NamedTensor> NamedParameters(const torch::nn::Module& module) {
  std::vector<NamedTensor> named;
  for (const auto& item : module.named_parameters()) named.push_back({item.key(), item.value()});
  for (const auto& item : module.named_buffers()) named.push_back({item.key(), item.value()});
  return named;
}

void BroadcastParameters(const std::vector<NamedTensor>& parameters, int root_rank) {
  std::vector<Handle> handles;
  for (const auto& [name, tensor] : parameters) {
    if (!tensor.defined()) continue;
    at::Tensor target = tensor;
    handles.push_back(BroadcastAsync_(target, root_rank, {.name = "broadcast." + name}));
  }
  for (const Handle& handle : handles) Synchronize(handle);
}

}  // namespace dslaunch::horovod
