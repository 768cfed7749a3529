// The operations of the stand-in device: each is the CPU's kernel, run later, in the order of a
// stream, on the device's memory. own_kernels.cc has those that are not.
#pragma once

#include <ATen/core/stack.h>
#include <torch/library.h>

#include <set>
#include <string>

namespace dslaunch::standin {

// Enqueues `op` with the arguments on `stack`, and puts its results there. Throws c10::Error where
// the arguments lie on several devices, or their shapes are wrong.
void RunOnDevice(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Registers the kernels that touch no values, those that copy and those of dropout, and returns
// their names.
std::set<std::string> RegisterOwnKernels(torch::Library& aten);

}  // namespace dslaunch::standin
