// Implements the operations of the stand-in device. Each is the CPU's kernel, run later, in the
// order of a stream, on the device's memory. The exceptions are in own_kernels.cc.
#pragma once

#include <ATen/core/stack.h>
#include <torch/library.h>

#include <set>
#include <string>

namespace dslaunch::standin {

// Enqueues `op` with the arguments on `stack`, and puts its results there. Throws c10::Error if the
// arguments are on several devices, or their shapes are wrong.
void RunOnDevice(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Registers the kernels that read no values, the copies, and dropout. Returns their names.
std::set<std::string> RegisterOwnKernels(torch::Library& aten);

}  // namespace dslaunch::standin
