#include "dslaunch/process_group.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "proto/contract/worker_env.h"
#include "trainer/comm/gloo_backend.h"
#include "trainer/program/explain.h"
#include "trainer/train_error.h"

namespace dslaunch {
namespace {

constexpr char kAllDone[] = "all_done";
constexpr std::chrono::minutes kFinishTimeout{1};

c10d::ReduceOp ToC10d(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return c10d::ReduceOp::SUM;
    case ReduceOp::kAverage:
      return c10d::ReduceOp::AVG;
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
    case ReduceOp::kProduct:
      return c10d::ReduceOp::PRODUCT;
  }
  std::abort();
}

std::string DoneKey(int rank) { return "done/" + std::to_string(rank); }

c10::intrusive_ptr<c10d::Store> MakeStore(const WorkerEnv& env) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(env.master_port);  // 0, in a world of one: any free port
  options.isServer = env.rank == 0;
  options.numWorkers = static_cast<size_t>(env.world_size);
  options.timeout = ProcessGroup::kConnectTimeout;
  try {
    return c10::make_intrusive<c10d::TCPStore>(env.master_addr, options);
  } catch (const c10::Error& error) {
    const std::string what = error.what_without_backtrace();
    const bool late = ClassifyCommFailure(what) == CommFailure::kTimedOut;
    throw TrainError(late ? ExitCode::kTimedOut : ExitCode::kUnavailable,
                     "the ranks cannot meet at " + env.master_addr + ":" +
                         std::to_string(env.master_port) +
                         ", where rank 0 listens (MASTER_ADDR and MASTER_PORT): " +
                         what.substr(0, what.find('\n')));
  }
}

}  // namespace

ProcessGroup::ProcessGroup(const WorkerEnv& env)
    : rank_(env.rank),
      world_size_(env.world_size),
      store_(MakeStore(env)),
      group_(c10::make_intrusive<c10d::ProcessGroup>(store_, rank_, world_size_)) {
  const auto gloo = MakeGlooBackend(c10::make_intrusive<c10d::PrefixStore>("gloo", store_), rank_,
                                    world_size_, kCollectiveTimeout);
  group_->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, gloo);
  group_->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  group_->setGroupName("world");
}

void ProcessGroup::AllReduce(at::Tensor& tensor, ReduceOp op) const {
  std::vector<at::Tensor> tensors = {tensor};
  c10d::AllreduceOptions options;
  options.reduceOp = ToC10d(op);
  group_->allreduce(tensors, options)->wait();
}

void ProcessGroup::Broadcast(at::Tensor& tensor, int root) const {
  std::vector<at::Tensor> tensors = {tensor};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  group_->broadcast(tensors, options)->wait();
}

at::Tensor ProcessGroup::AllGather(const at::Tensor& tensor) const {
  std::vector<int64_t> shape = tensor.sizes().vec();
  shape.insert(shape.begin(), world_size_);
  const at::Tensor all = at::empty(shape, tensor.options());
  std::vector<at::Tensor> inputs = {tensor.contiguous()};
  std::vector<std::vector<at::Tensor>> outputs = {all.unbind(0)};
  group_->allgather(outputs, inputs)->wait();
  return all;
}

at::Tensor ProcessGroup::ReduceScatter(const at::Tensor& tensor, ReduceOp op) const {
  std::vector<at::Tensor> outputs = {at::empty_like(tensor[0])};
  std::vector<std::vector<at::Tensor>> inputs = {tensor.contiguous().unbind(0)};
  c10d::ReduceScatterOptions options;
  options.reduceOp = ToC10d(op);
  group_->reduce_scatter(outputs, inputs, options)->wait();
  return outputs[0];
}

void ProcessGroup::Send(const at::Tensor& tensor, int to) const {
  std::vector<at::Tensor> tensors = {tensor.contiguous()};
  group_->send(tensors, to, /*tag=*/0)->wait();
}

void ProcessGroup::Recv(at::Tensor& tensor, int from) const {
  std::vector<at::Tensor> tensors = {tensor};
  group_->recv(tensors, from, /*tag=*/0)->wait();
}

void ProcessGroup::Barrier() const { group_->barrier()->wait(); }

void ProcessGroup::AllReduceSum(std::vector<double>& values) const {
  std::vector<at::Tensor> tensors = {
      at::from_blob(values.data(), {static_cast<int64_t>(values.size())}, at::kDouble)};
  group_->allreduce(tensors)->wait();
}

void ProcessGroup::Finish() {
  // Gloo may still have bytes under way when a collective returns; closing then resets the peer's
  // connection. So every rank first says that it has all it needs, and goes when all have said so.
  const std::vector<uint8_t> yes = {1};
  store_->set(DoneKey(rank_), yes);
  if (rank_ == 0) {
    std::vector<std::string> keys;
    for (int rank = 0; rank < world_size_; ++rank) keys.push_back(DoneKey(rank));
    store_->wait(keys, kFinishTimeout);
    store_->set(kAllDone, yes);
  } else {
    try {
      store_->wait({kAllDone}, kFinishTimeout);
    } catch (const std::exception&) {
      // Rank 0 hosts the store and has gone, which it does only when all are done.
    }
  }
  group_->shutdown();
  group_.reset();
  store_.reset();
}

ProcessGroup InitProcessGroup() {
  const auto env = WorkerEnv::FromEnviron(std::getenv);
  if (!env) throw TrainError(env.error().code, env.error().message);
  return ProcessGroup(*env);
}

}  // namespace dslaunch
