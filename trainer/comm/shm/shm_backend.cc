#include "trainer/comm/shm/shm_backend.h"

#include <ATen/ATen.h>

#include <memory>
#include <utility>

#include "trainer/comm/shm/bootstrap.h"
#include "trainer/comm/shm/progress_thread.h"

namespace dslaunch {
namespace {

using Tensors = std::vector<at::Tensor>;

// An operation of the engine as c10d sees it. Holds its tensors until it is done; then only an
// all-reduce still has them, in its future, so that what a caller lets go of after wait() is free.
class ShmWork : public c10d::Work {
 public:
  ShmWork(int rank, c10d::OpType type, const char* title, Tensors held)
      : Work(rank, type, title, held),
        held_(std::move(held)),
        future_(c10::make_intrusive<c10::ivalue::Future>(
            c10::ListType::create(c10::TensorType::get()))) {}

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  void abort() override {
    if (const auto engine = engine_.lock()) engine->GiveUp(id_);
  }

  void Watch(const std::shared_ptr<ProgressThread>& engine, uint64_t id) {
    engine_ = engine;
    id_ = id;
  }
  void End(const std::exception_ptr& error) {
    Tensors results;
    if (opType_ == c10d::OpType::ALLREDUCE) results = held_;
    held_.clear();
    // Ends the event of a profiler that records; who waits for the future may then stop it.
    finish(error);
    if (error) {
      future_->setError(error);
    } else {
      future_->markCompleted(c10::IValue(std::move(results)));
    }
  }

 private:
  Tensors held_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::weak_ptr<ProgressThread> engine_;
  uint64_t id_ = 0;
};

class ShmBackend : public c10d::Backend {
 public:
  ShmBackend(int rank, std::shared_ptr<ProgressThread> engine, std::chrono::milliseconds timeout)
      : Backend(rank, static_cast<int>(engine->own().ranks)),
        engine_(std::move(engine)),
        timeout_(timeout) {}

  const std::string getBackendName() const override { return "shm"; }

  c10::intrusive_ptr<c10d::Work> allreduce(Tensors& tensors,
                                           const c10d::AllreduceOptions& options) override {
    const at::Tensor& tensor = TheOne(tensors);
    return Begin(AllReduceChunks(engine_->own(), tensor, options.reduceOp), c10d::OpType::ALLREDUCE,
                 "shm:all_reduce", tensors);
  }

  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override {
    Check(input);
    Check(output);
    TORCH_CHECK(input.numel() == output.numel() * getSize() && input.dtype() == output.dtype(),
                "shm: reduce-scatter needs an input of world_size times the size of the output");
    return Begin(ReduceScatterChunks(engine_->own(), input, output, options.reduceOp),
                 c10d::OpType::_REDUCE_SCATTER_BASE, "shm:reduce_scatter", {input, output});
  }

  c10::intrusive_ptr<c10d::Work> broadcast(Tensors& tensors,
                                           const c10d::BroadcastOptions& options) override {
    const at::Tensor& tensor = TheOne(tensors);
    return Begin(BroadcastChunks(engine_->own(), tensor, static_cast<size_t>(options.rootRank)),
                 c10d::OpType::BROADCAST, "shm:broadcast", tensors);
  }

  c10::intrusive_ptr<c10d::Work> allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                           const c10d::AllgatherOptions&) override {
    const at::Tensor& input = TheOne(inputs);
    TORCH_CHECK(outputs.size() == 1 && outputs[0].size() == static_cast<size_t>(getSize()),
                "shm: all-gather needs one output for each rank");
    for (const at::Tensor& output : outputs[0]) {
      Check(output);
      TORCH_CHECK(output.nbytes() == input.nbytes(),
                  "shm: all-gather's outputs must have the size of its input");
    }
    Tensors held = outputs[0];
    held.push_back(input);
    return Begin(AllGatherChunks(engine_->own(), input, outputs[0]), c10d::OpType::ALLGATHER,
                 "shm:all_gather", held);
  }

  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& options) override {
    Check(output);
    TORCH_CHECK(output.numel() == input.numel() * getSize() && input.dtype() == output.dtype(),
                "shm: all-gather needs an output of world_size times the size of the input");
    std::vector<Tensors> outputs = {output.view({getSize(), input.numel()}).unbind(0)};
    Tensors inputs = {input};
    return allgather(outputs, inputs, options);
  }

  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input,
                                               std::vector<int64_t>& output_sizes,
                                               std::vector<int64_t>& input_sizes,
                                               const c10d::AllToAllOptions&) override {
    Check(input);
    Check(output);
    TORCH_CHECK(output_sizes.empty() && input_sizes.empty() && input.nbytes() == output.nbytes() &&
                    input.numel() % getSize() == 0,
                "shm: all-to-all needs parts of equal size");
    return Begin(AllToAllChunks(engine_->own(), input, output), c10d::OpType::ALLTOALL_BASE,
                 "shm:all_to_all", {input, output});
  }

  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions&) override {
    return Begin(BarrierChunks(), c10d::OpType::BARRIER, "shm:barrier", {});
  }

  c10::intrusive_ptr<c10d::Work> send(Tensors& tensors, int to, int tag) override {
    const at::Tensor& tensor = TheOne(tensors);
    const auto work =
        c10::make_intrusive<ShmWork>(getRank(), c10d::OpType::SEND, "shm:send", tensors);
    work->Watch(engine_, engine_->Send(PeerOf(to), static_cast<uint64_t>(tag), BytesOf(tensor),
                                       tensor.nbytes(), Deadline::After(timeout_), EndOf(work)));
    return work;
  }

  c10::intrusive_ptr<c10d::Work> recv(Tensors& tensors, int from, int tag) override {
    const at::Tensor& tensor = TheOne(tensors);
    const auto work =
        c10::make_intrusive<ShmWork>(getRank(), c10d::OpType::RECV, "shm:recv", tensors);
    work->Watch(engine_, engine_->Receive(PeerOf(from), static_cast<uint64_t>(tag), BytesOf(tensor),
                                          tensor.nbytes(), Deadline::After(timeout_), EndOf(work)));
    return work;
  }

  void shutdown() override { engine_.reset(); }

 private:
  static std::byte* BytesOf(const at::Tensor& tensor) {
    return static_cast<std::byte*>(tensor.data_ptr());
  }

  static void Check(const at::Tensor& tensor) {
    TORCH_CHECK(tensor.device().is_cpu() && tensor.is_contiguous(),
                "shm: tensors must be contiguous and on the CPU");
  }

  static const at::Tensor& TheOne(const Tensors& tensors) {
    TORCH_CHECK(tensors.size() == 1, "shm: exactly one tensor is supported");
    Check(tensors[0]);
    return tensors[0];
  }

  size_t PeerOf(int rank) const {
    TORCH_CHECK(rank >= 0 && rank < getSize() && rank != getRank(), "shm: rank ", rank,
                " is not another rank of the group");
    return static_cast<size_t>(rank);
  }

  static ProgressThread::Done EndOf(const c10::intrusive_ptr<ShmWork>& work) {
    return [work](const std::exception_ptr& error) { work->End(error); };
  }

  c10::intrusive_ptr<c10d::Work> Begin(Collective collective, c10d::OpType type, const char* title,
                                       Tensors held) {
    const auto work = c10::make_intrusive<ShmWork>(getRank(), type, title, std::move(held));
    work->Watch(engine_,
                engine_->Begin(std::move(collective), Deadline::After(timeout_), EndOf(work)));
    return work;
  }

  std::shared_ptr<ProgressThread> engine_;
  std::chrono::milliseconds timeout_;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> MakeShmBackend(const c10::intrusive_ptr<c10d::Store>& store,
                                                 int rank, const std::vector<size_t>& names,
                                                 std::chrono::milliseconds timeout) {
  std::optional<SharedHost> host = BootstrapSharedHost(*store, rank, names.size());
  if (!host) return nullptr;
  auto engine = std::make_shared<ProgressThread>(
      std::move(host->segment), static_cast<size_t>(rank), std::move(host->processes), names);
  return c10::make_intrusive<ShmBackend>(rank, std::move(engine), timeout);
}

}  // namespace dslaunch
