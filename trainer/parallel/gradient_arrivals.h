// Calls a function as soon as a backward pass has computed a parameter's gradient.
#pragma once

#include <functional>
#include <vector>

#include "dslaunch/named_tensor.h"

namespace dslaunch {

// Throws TrainError kBadInput, naming the parameter, if another engine or the program uses the hook
// that GradientArrivals needs.
void CheckHooksAreFree(const std::vector<NamedTensor>& parameters);

// Throws TrainError kBadInput, which states that the parameter got no gradient in this step and
// gives hints.
[[noreturn]] void RefuseWithoutGradient(const NamedTensor& parameter);

// Observes the arrival of gradients. Used by one thread, which also runs the backward passes.
class GradientArrivals {
 public:
  // Makes every backward pass call `arrived` with the index of a parameter whenever it has added a
  // gradient to the parameter's .grad(). Occupies the tensors' post-accumulate hooks until this
  // object is destroyed, because PyTorch keeps only one hook per tensor. Precondition:
  // CheckHooksAreFree succeeded. A gradient that is not dense throws TrainError out of the backward
  // pass, naming the parameter.
  GradientArrivals(std::vector<NamedTensor> parameters, std::function<void(size_t)> arrived);
  ~GradientArrivals();
  GradientArrivals(const GradientArrivals&) = delete;
  GradientArrivals& operator=(const GradientArrivals&) = delete;

  // Makes a second gradient of a parameter throw TrainError out of the backward pass, because the
  // ranks have already exchanged the first gradient. AllowAny undoes this.
  void ExpectOnce();
  void AllowAny();

  // Returns whether the parameter's gradient has arrived since ExpectOnce.
  bool arrived(size_t parameter) const { return arrived_[parameter]; }
  // Returns the indices of the parameters whose gradients have arrived since ExpectOnce, in order.
  const std::vector<size_t>& order() const { return order_; }
  // Returns whether the gradients of all parameters have arrived since ExpectOnce.
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
