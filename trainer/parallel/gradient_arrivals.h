// Sees each parameter's gradient at the moment at which a backward pass has it.
#pragma once

#include <functional>
#include <vector>

#include "dslaunch/named_tensor.h"

namespace dslaunch {

// Throws TrainError kBadInput, naming the parameter, where the hook that GradientArrivals needs is
// taken: by another engine, or by the program.
void CheckHooksAreFree(const std::vector<NamedTensor>& parameters);

// Throws TrainError kBadInput with the way out: this step needs a gradient of it, and there is
// none.
[[noreturn]] void RefuseWithoutGradient(const NamedTensor& parameter);

// One thread, in which the backward passes run too.
class GradientArrivals {
 public:
  // In a backward pass `arrived` is called with the index of a parameter whenever its gradient has
  // been added to its .grad(). This is the tensors' post-accumulate hook, of which PyTorch keeps
  // one: it must be free (CheckHooksAreFree), and is until this is destroyed taken. A gradient that
  // is not dense throws TrainError out of the backward pass, naming the parameter.
  GradientArrivals(std::vector<NamedTensor> parameters, std::function<void(size_t)> arrived);
  ~GradientArrivals();
  GradientArrivals(const GradientArrivals&) = delete;
  GradientArrivals& operator=(const GradientArrivals&) = delete;

  // From now on each parameter's gradient comes once, until AllowAny: a second one throws
  // TrainError out of the backward pass, for the ranks have exchanged the first.
  void ExpectOnce();
  void AllowAny();

  // Since ExpectOnce.
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
