#include "trainer/base/format.h"
#include "trainer/profile/comms_logger.h"
#include "trainer/profile/communication.h"

namespace dslaunch {

std::string CommsTable(const CommsRows& rows, int ranks) {
  if (rows.empty()) return "communication: none";
  std::string text = Format("%-16s %12s %8s %14s %14s %12s %12s", "communication", "size", "calls",
                            "total", "mean", "GB/s", "bus GB/s");
  for (const auto& [key, row] : rows) {
    const auto& [kind, bytes] = key;
    const double mean_s = row.seconds / static_cast<double>(row.calls);
    const Bandwidth bandwidth = BandwidthOf(kind, static_cast<double>(bytes), mean_s, ranks);
    text += Format("\n%-16s %12s %8lld %11.3f ms %11.3f ms %12.3f %12.3f", kind.c_str(),
                   BytesText(bytes).c_str(), static_cast<long long>(row.calls), row.seconds * 1e3,
                   mean_s * 1e3, bandwidth.algorithm, bandwidth.bus);
  }
  return text;
}

std::string CommsLine(const std::string& kind, int64_t bytes, double seconds, int ranks) {
  const Bandwidth bandwidth = BandwidthOf(kind, static_cast<double>(bytes), seconds, ranks);
  return Format("%s of %s in %.3f ms: %.3f GB/s, on the bus %.3f GB/s", kind.c_str(),
                BytesText(bytes).c_str(), seconds * 1e3, bandwidth.algorithm, bandwidth.bus);
}

}  // namespace dslaunch
