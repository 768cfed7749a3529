// Calls a function as soon as a backward pass has a parameter's gradient.
#pragma once

#include <functional>
#include <vector>

#include "dslaunch/named_tensor.h"

namespace dslaunch {

// Throws TrainError kBadInput, naming the parameter, if the hook that GradientArrivals needs is in
// use, by another engine or by the program.
void CheckHooksAreFree(const std::vector<NamedTensor>& parameters);

// Throws TrainError kBadInput with hints: this step needs a gradient of the parameter, but it got
// none.
[[noreturn]] void RefuseWithoutGradient(const NamedTensor& parameter);

// One thread, which also runs the backward passes.
class GradientArrivals {
 public:
  // A backward pass calls `arrived` with the index of a parameter whenever it has added a gradient
  // to the parameter's .grad(). Uses the tensors' post-accumulate hook until this is destroyed;
  // PyTorch keeps one hook for each tensor. Precondition: CheckHooksAreFree. A gradient that is not
  // dense throws TrainError out of the backward pass, naming the parameter.
  GradientArrivals(std::vector<NamedTensor> parameters, std::function<void(size_t)> arrived);
  ~GradientArrivals();
  GradientArrivals(const GradientArrivals&) = delete;
  GradientArrivals& operator=(const GradientArrivals&) = delete;

  // From now on, and until AllowAny, a second gradient of a parameter throws TrainError out of the
  // backward pass, because the ranks have exchanged the first.
  void ExpectOnce();
  void AllowAny();

  // Whether the parameter's gradient has arrived since ExpectOnce.
  bool arrived(size_t parameter) const { return arrived_[parameter]; }
  const std::vector<size_t>& order() const { return order_; }
  bool complete() const { return order_.size() == parameters_.size(); }

 private:
  void Arrive(size_t parameter);

  std::vector<NamedTensor> parameters_;
  std::function<void(size_t)> on_arrival_;
  bool once_ = false;
  std::vector<bool> arrived_;
  std::vector<size_t> order_;
};

}  // namespace dslaunch
