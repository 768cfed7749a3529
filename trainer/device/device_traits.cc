#include "trainer/device/device_traits.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "trainer/device/accelerator.h"

namespace dslaunch {
namespace {

// Returns the words after the colon in the first line that begins with `name`.
std::set<std::string> WordsOf(std::string_view text, std::string_view name) {
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (!line.starts_with(name) || colon == std::string::npos) continue;
    std::istringstream words(line.substr(colon + 1));
    return {std::istream_iterator<std::string>(words), {}};
  }
  return {};
}

}  // namespace

DeviceTraits TraitsOf(const RankDevice& device) {
  if (device.accelerator != nullptr) return device.accelerator->Traits(device.device.index());
  std::ostringstream text;
  text << std::ifstream("/proc/cpuinfo").rdbuf();
  return TraitsOfCpu(text.str());
}

DeviceTraits TraitsOfCpu(std::string_view text) {
  const std::set<std::string> x86 = WordsOf(text, "flags"), arm = WordsOf(text, "Features");
  const auto any = [](const std::set<std::string>& words, std::initializer_list<const char*> of) {
    return std::any_of(of.begin(), of.end(), [&](const char* one) { return words.contains(one); });
  };
  if (!x86.empty()) {
    return {.float16 = any(x86, {"avx512_fp16", "amx_fp16"}),
            .bfloat16 = any(x86, {"avx512_bf16", "amx_bf16"})};
  }
  if (!arm.empty()) return {.float16 = any(arm, {"asimdhp"}), .bfloat16 = any(arm, {"bf16"})};
  return {};
}

std::string PrecisionRemark(const PrecisionConfig& precision, const DeviceTraits& traits) {
  const Dtype dtype = precision.autocast.value_or(precision.model);
  const bool half = dtype == Dtype::kFloat16;
  if (dtype == Dtype::kFloat32 || (half ? traits.float16 : traits.bfloat16)) return "";
  const bool other = half ? traits.bfloat16 : traits.float16;
  return std::string("this hardware does not compute in ") + (half ? "fp16" : "bf16") +
         ": it converts to fp32 and back, which saves memory, not time" +
         (other ? std::string("; it does compute in ") + (half ? "bf16" : "fp16") : "");
}

}  // namespace dslaunch
