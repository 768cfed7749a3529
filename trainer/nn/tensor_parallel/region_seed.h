// Random numbers in layers that are divided over a tensor-parallel group. The ranks have default
// generators with the same state, so that they draw the same masks for values that all of them
// compute.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <utility>
#include <vector>

#include "trainer/nn/tensor_parallel/tensor_parallel.h"

namespace dslaunch {

// While it exists, the default generators of the CPU and of `device` draw different numbers on each
// rank. Afterwards their state is the same on all ranks again, whatever was drawn, and depends on
// their state before, so a pass that is recomputed draws the same numbers. Does nothing if `tensor`
// divides nothing, or if nothing `draws`.
class RegionSeed {
 public:
  RegionSeed(const TensorParallel& tensor, c10::Device device, bool draws);
  ~RegionSeed();
  RegionSeed(const RegionSeed&) = delete;
  RegionSeed& operator=(const RegionSeed&) = delete;

 private:
  std::vector<std::pair<at::Generator, at::Tensor>> states_;  // outside, by generator
};

// Returns at::dropout of a tensor that all ranks have. With sequence parallelism each rank has
// different tokens, so it uses a different mask.
at::Tensor DropoutOutsideRegions(const at::Tensor& x, double p, bool train,
                                 const TensorParallel& tensor);

}  // namespace dslaunch
