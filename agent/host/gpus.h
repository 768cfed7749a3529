// The GPUs of this machine.
#pragma once

namespace dslaunch {

// How many NVIDIA GPUs a program with this value of CUDA_VISIBLE_DEVICES (nullptr: unset) sees.
int CountVisibleGpus(const char* cuda_visible_devices);

}  // namespace dslaunch
