#include "tests/support/echo_backend.h"

#include <ATen/ATen.h>

#include <stdexcept>

namespace dslaunch {
namespace {

class DoneWork : public c10d::Work {
 public:
  DoneWork() { finish(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    static const auto done = [] {
      auto future = c10::make_intrusive<c10::ivalue::Future>(c10::NoneType::get());
      future->markCompleted();
      return future;
    }();
    return done;
  }
};

c10::intrusive_ptr<c10d::Work> Done() { return c10::make_intrusive<DoneWork>(); }

}  // namespace

c10::intrusive_ptr<c10d::Work> EchoBackend::send(std::vector<at::Tensor>& tensors, int to,
                                                 int tag) {
  sent_[{to, tag}].push_back(tensors[0]);
  sent_bytes_ += static_cast<int64_t>(tensors[0].nbytes());
  return Done();
}

c10::intrusive_ptr<c10d::Work> EchoBackend::recv(std::vector<at::Tensor>& tensors, int from,
                                                 int tag) {
  const auto row = sent_.find({from, tag});
  if (row == sent_.end()) throw std::runtime_error("nothing was sent to that rank before");
  const at::NoGradGuard no_grad;
  tensors[0].copy_(row->second.front());
  row->second.erase(row->second.begin());
  if (row->second.empty()) sent_.erase(row);
  return Done();
}

c10::intrusive_ptr<c10d::Work> EchoBackend::broadcast(std::vector<at::Tensor>&,
                                                      const c10d::BroadcastOptions&) {
  return Done();
}

c10::intrusive_ptr<c10d::Work> EchoBackend::allreduce(std::vector<at::Tensor>& tensors,
                                                      const c10d::AllreduceOptions& options) {
  const at::NoGradGuard no_grad;
  if (options.reduceOp == c10d::ReduceOp::SUM) tensors[0].mul_(getSize());
  return Done();
}

c10::intrusive_ptr<c10d::Work> EchoBackend::allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                                      std::vector<at::Tensor>& inputs,
                                                      const c10d::AllgatherOptions&) {
  const at::NoGradGuard no_grad;
  for (at::Tensor& output : outputs[0]) output.copy_(inputs[0].view_as(output));
  return Done();
}

c10::intrusive_ptr<c10d::Work> EchoBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                          std::vector<int64_t>&,
                                                          std::vector<int64_t>&,
                                                          const c10d::AllToAllOptions&) {
  const at::NoGradGuard no_grad;
  const at::Tensor own = input.view({getSize(), -1})[getRank()];
  output.view({getSize(), -1}).copy_(own);
  return Done();
}

c10::intrusive_ptr<c10d::Work> EchoBackend::barrier(const c10d::BarrierOptions&) { return Done(); }

}  // namespace dslaunch
