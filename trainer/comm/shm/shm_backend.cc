#include "trainer/comm/shm/shm_backend.h"

#include <ATen/ATen.h>

#include <memory>
#include <utility>

#include "trainer/comm/backend/cpu_backend.h"
#include "trainer/comm/shm/bootstrap.h"
#include "trainer/comm/shm/progress_thread.h"

namespace dslaunch {
namespace {

class ShmBackend : public CpuBackend {
 public:
  ShmBackend(int rank, std::shared_ptr<ProgressThread> engine, std::chrono::milliseconds timeout)
      : CpuBackend("shm", rank, static_cast<int>(engine->own().ranks)),
        engine_(std::move(engine)),
        timeout_(timeout) {}

  void shutdown() override { engine_.reset(); }

 private:
  Start AllReduce(const at::Tensor& tensor, c10d::ReduceOp::RedOpType op) override {
    return InChunks(AllReduceChunks(engine_->own(), tensor, op));
  }
  Start ReduceScatter(const at::Tensor& parts, const at::Tensor& result,
                      c10d::ReduceOp::RedOpType op) override {
    return InChunks(ReduceScatterChunks(engine_->own(), parts, result, op));
  }
  Start Broadcast(const at::Tensor& tensor, size_t root) override {
    return InChunks(BroadcastChunks(engine_->own(), tensor, root));
  }
  Start AllGather(const at::Tensor& input, const Tensors& outputs) override {
    return InChunks(AllGatherChunks(engine_->own(), input, outputs));
  }
  Start AllToAll(const at::Tensor& input, const at::Tensor& output) override {
    return InChunks(AllToAllChunks(engine_->own(), input, output));
  }
  Start Barrier() override { return InChunks(BarrierChunks()); }

  Start Send(size_t peer, uint64_t tag, const at::Tensor& tensor) override {
    return [=, this](const Ref<QueuedWork>& work) {
      Watch(*work, engine_->Send(peer, tag, BytesOf(tensor), tensor.nbytes(),
                                 Deadline::After(timeout_), EndOf(work)));
    };
  }
  Start Receive(size_t peer, uint64_t tag, const at::Tensor& tensor) override {
    return [=, this](const Ref<QueuedWork>& work) {
      Watch(*work, engine_->Receive(peer, tag, BytesOf(tensor), tensor.nbytes(),
                                    Deadline::After(timeout_), EndOf(work)));
    };
  }

  Start InChunks(Collective collective) {
    return [this, collective = std::move(collective)](const Ref<QueuedWork>& work) mutable {
      Watch(*work, engine_->Begin(std::move(collective), Deadline::After(timeout_), EndOf(work)));
    };
  }

  // Makes abort() of `work` cancel the engine's operation `id`.
  void Watch(QueuedWork& work, uint64_t id) const {
    work.SetGiveUp([weak = std::weak_ptr<ProgressThread>(engine_), id] {
      if (const auto alive = weak.lock()) alive->GiveUp(id);
    });
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
