// Implements the c10d::Work of an operation that runs on a backend's own thread.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

namespace dslaunch {

// Holds the tensors of the operation until it ends. Afterwards only an all-reduce still holds its
// tensors, in its future. For other operations, memory that a caller releases after wait() is
// therefore freed at once.
class QueuedWork : public c10d::Work {
 public:
  QueuedWork(int rank, c10d::OpType type, const char* title, std::vector<at::Tensor> held)
      : Work(rank, type, title, held),
        held_(std::move(held)),
        future_(c10::make_intrusive<c10::ivalue::Future>(
            c10::ListType::create(c10::TensorType::get()))) {}

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  void abort() override {
    if (give_up_) give_up_();
  }

  // Sets the function that abort() calls, on any thread, possibly after the end of the operation.
  // Call SetGiveUp before the work is shared.
  void SetGiveUp(std::function<void()> give_up) { give_up_ = std::move(give_up); }

  // Ends the work, with success if `error` is null. Call it once.
  void End(const std::exception_ptr& error) {
    std::vector<at::Tensor> results;
    if (opType_ == c10d::OpType::ALLREDUCE) results = held_;
    held_.clear();
    // Code that waits for the future may stop the profiler, so the profiler's event ends first.
    finish(error);
    if (error) {
      future_->setError(error);
    } else {
      future_->markCompleted(c10::IValue(std::move(results)));
    }
  }

 private:
  std::vector<at::Tensor> held_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::function<void()> give_up_;
};

}  // namespace dslaunch
