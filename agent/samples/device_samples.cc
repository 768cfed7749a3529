#include "agent/samples/device_samples.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>

#include "agent/host/nvidia_smi.h"
#include "base/text/sanitize.h"

namespace dslaunch {
namespace {

constexpr double kMebibyte = 1 << 20;
constexpr double kMostMebibytes = 1 << 30;  // limit of a memory size in MiB: one PiB
constexpr double kMostWatts = 1e6;
constexpr double kMostCount = 1e15;  // limit of a count; exact in a double

// A name may contain a comma, so it is the last field.
constexpr std::string_view kFields[] = {
    "index",
    "uuid",
    "power.draw",
    "power.limit",
    "temperature.gpu",
    "utilization.gpu",
    "memory.total",
    "memory.used",
    "clocks.sm",
    "ecc.errors.corrected.volatile.total",
    "ecc.errors.uncorrected.volatile.total",
};
// Driver 535 renamed the field and accepts both names, so the old name comes first, which older
// drivers accept too.
constexpr std::array<std::string_view, kDeviceQueries> kThrottleField = {
    "clocks_throttle_reasons.active", "clocks_event_reasons.active", ""};

std::optional<double> NumberOf(std::string_view field, double most) {
  double number = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), number);
  if (error != std::errc() || end != field.data() + field.size()) return std::nullopt;
  if (!std::isfinite(number) || number < 0 || number > most) return std::nullopt;
  return number;
}

std::optional<uint64_t> MaskOf(std::string_view field) {
  if (!field.starts_with("0x")) return std::nullopt;
  field.remove_prefix(2);
  uint64_t mask = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), mask, 16);
  if (error != std::errc() || end != field.data() + field.size()) return std::nullopt;
  return mask;
}

}  // namespace

std::string DeviceQuery(size_t query) {
  std::string names;
  for (const std::string_view field : kFields) names.append(field).append(",");
  if (!kThrottleField[query].empty()) names.append(kThrottleField[query]).append(",");
  return names + "name";
}

std::optional<pb::DeviceSample> ParseDeviceLine(std::string_view line, size_t query) {
  constexpr double kMostIndex = 4096;
  constexpr double kMostCelsius = 1000;
  constexpr double kMostMegahertz = 1e6;
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
  pb::DeviceSample device;
  const auto index = NumberOf(TakeCsvField(line), kMostIndex);
  const std::string_view uuid = TakeCsvField(line);
  if (!index || !(uuid.starts_with("GPU-") || uuid.starts_with("MIG-"))) return std::nullopt;
  device.set_index(static_cast<uint32_t>(*index));
  device.set_uuid(Truncate(uuid));
  if (const auto watts = NumberOf(TakeCsvField(line), kMostWatts)) device.set_power_w(*watts);
  if (const auto watts = NumberOf(TakeCsvField(line), kMostWatts)) device.set_power_limit_w(*watts);
  if (const auto celsius = NumberOf(TakeCsvField(line), kMostCelsius))
    device.set_temperature_c(static_cast<uint32_t>(*celsius));
  if (const auto percent = NumberOf(TakeCsvField(line), 100))
    device.set_utilization_percent(static_cast<uint32_t>(*percent));
  if (const auto total = NumberOf(TakeCsvField(line), kMostMebibytes))
    device.set_memory_bytes(static_cast<uint64_t>(*total * kMebibyte));
  if (const auto used = NumberOf(TakeCsvField(line), kMostMebibytes))
    device.set_memory_used_bytes(static_cast<uint64_t>(*used * kMebibyte));
  if (const auto clock = NumberOf(TakeCsvField(line), kMostMegahertz))
    device.set_sm_clock_mhz(static_cast<uint32_t>(*clock));
  if (const auto errors = NumberOf(TakeCsvField(line), kMostCount))
    device.set_ecc_corrected(static_cast<uint64_t>(*errors));
  if (const auto errors = NumberOf(TakeCsvField(line), kMostCount))
    device.set_ecc_uncorrected(static_cast<uint64_t>(*errors));
  if (!kThrottleField[query].empty()) {
    if (const auto reasons = MaskOf(TakeCsvField(line))) device.set_throttle_reasons(*reasons);
  }
  device.set_name(Truncate(line));
  if (device.name().empty()) return std::nullopt;
  return device;
}

bool IsUnknownField(std::string_view line) {
  return line.find("is not a valid field to query") != std::string_view::npos;
}

std::vector<uint32_t> DevicesNamed(std::string_view name,
                                   const std::vector<pb::DeviceSample>& devices) {
  std::vector<uint32_t> named;
  if (name.empty()) return named;
  for (const pb::DeviceSample& device : devices) {
    if (std::to_string(device.index()) == name ||
        (name.starts_with("GPU-") && device.uuid().starts_with(name)))
      named.push_back(device.index());
  }
  return named;
}

}  // namespace dslaunch
