// Mixed precision chosen operator by operator, as torch.autocast does it.
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <optional>

namespace dslaunch {

// While one lives, operators of this thread that gain from it (matrix products, convolutions) run
// in `dtype` and those that need it (losses, norms) in fp32, on the CPU and on GPUs. nullopt
// changes nothing. The last one to end clears the cache of weights in 16 bit.
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
