// Provides random numbers for layers that are divided over a tensor-parallel group. The ranks'
// default generators have the same state, so that the ranks draw the same masks for values that all
// ranks compute.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <utility>
#include <vector>

#include "trainer/nn/tensor_parallel/tensor_parallel.h"

namespace dslaunch {

// Makes the default generators of the CPU and of `device` draw different numbers on each rank, for
// the lifetime of the object. Afterwards their states are again equal on all ranks, regardless of
// the numbers drawn. All seeds depend only on the states before, so a recomputed pass draws the
// same numbers. Does nothing if `tensor` divides nothing, or unless `draws`.
class RegionSeed {
 public:
  RegionSeed(const TensorParallel& tensor, c10::Device device, bool draws);
  ~RegionSeed();
  RegionSeed(const RegionSeed&) = delete;
  RegionSeed& operator=(const RegionSeed&) = delete;

 private:
  // Generators with the states that they have outside of the region.
  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

// Returns at::dropout of a tensor that all ranks have. With sequence parallelism the ranks have
// different tokens, so each rank uses a different mask.
at::Tensor DropoutOutsideRegions(const at::Tensor& x, double p, bool train,
                                 const TensorParallel& tensor);

}  // namespace dslaunch
