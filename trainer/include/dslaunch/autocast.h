// Defines a scope in which each operator runs in a suitable precision, like torch.autocast.
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <optional>

namespace dslaunch {

// Enables mixed precision in this thread for the lifetime of the object. Matrix products and
// convolutions run in `dtype`, on the CPU and on GPUs. Numerically sensitive operators (losses,
// norms) run in fp32. A `dtype` of nullopt changes nothing. The destructor of the outermost scope
// clears the cache of 16-bit weights.
class AutocastScope {
 public:
  explicit AutocastScope(std::optional<at::ScalarType> dtype);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  static constexpr std::array kDevices = {at::DeviceType::CPU, at::DeviceType::CUDA};
  struct Setting {
    bool enabled = false;
    at::ScalarType dtype = at::ScalarType::Undefined;
  };

  bool active_;
  std::array<Setting, kDevices.size()> before_;
};

}  // namespace dslaunch
