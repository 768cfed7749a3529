#include "trainer/profile/communication.h"

#include <map>

namespace dslaunch {
namespace {

constexpr double kNanosecond = 1e-9;

// A name that another library uses for an operation.
struct OtherName {
  std::string_view name;
  const char* kind;
};
constexpr OtherName kOtherNames[] = {{"allreduce", "all_reduce"},
                                     {"_allgather_base", "all_gather"},
                                     {"_all_gather_base", "all_gather"},
                                     {"allgather", "all_gather"},
                                     {"_reduce_scatter_base", "reduce_scatter"},
                                     {"recvAnySource", "recv"}};

}  // namespace

std::optional<std::string> CommunicationKind(std::string_view event) {
  const size_t colon = event.find(':');
  if (colon == std::string_view::npos || colon == 0) return std::nullopt;
  std::string_view name = event.substr(colon + 1);
  // Operators such as "aten::add" are not exchanges.
  if (name.starts_with(':')) return std::nullopt;
  name = name.substr(0, name.find(' '));  // removes the ranks in "nccl:send 0->1"
  for (const OtherName& other : kOtherNames) {
    if (name == other.name) return other.kind;
  }
  for (const char* kind : kCommunicationKinds) {
    if (name == kind) return kind;
  }
  return std::nullopt;
}

std::optional<std::string> KernelCommunicationKind(std::string_view kernel) {
  if (!kernel.starts_with("nccl")) return std::nullopt;
  constexpr OtherName kKernels[] = {{"AllReduce", "all_reduce"},
                                    {"ReduceScatter", "reduce_scatter"},
                                    {"AllGather", "all_gather"},
                                    {"Broadcast", "broadcast"},
                                    {"SendRecv", "send"}};
  for (const OtherName& known : kKernels) {
    if (kernel.find(known.name) != std::string_view::npos) return known.kind;
  }
  return std::nullopt;
}

CommunicationSummary Summarize(const std::vector<Exchanged>& exchanges,
                               std::vector<Interval> compute) {
  CommunicationSummary summary;
  std::map<std::string, CommunicationSummary::Kind> kinds;
  std::vector<Interval> times;
  for (const Exchanged& one : exchanges) {
    CommunicationSummary::Kind& kind = kinds[one.kind];
    kind.name = one.kind;
    ++kind.calls;
    kind.bytes += one.bytes;
    kind.seconds += static_cast<double>(one.time.end - one.time.begin) * kNanosecond;
    times.push_back(one.time);
  }
  for (auto& [name, kind] : kinds) summary.kinds.push_back(kind);
  const std::vector<Interval> communication = Union(std::move(times));
  summary.total_s = static_cast<double>(Length(communication)) * kNanosecond;
  summary.hidden_s =
      static_cast<double>(Length(Intersection(communication, Union(std::move(compute))))) *
      kNanosecond;
  return summary;
}

Bandwidth BandwidthOf(const std::string& kind, double bytes, double seconds, int ranks) {
  if (seconds <= 0) return {};
  const double n = ranks;
  // For an all-gather, nccl-tests counts the total bytes of all ranks, so this rank's bytes are
  // multiplied.
  if (kind == "all_gather") bytes *= n;
  const double algorithm = bytes / seconds / 1e9;
  double factor = 1;
  if (kind == "all_reduce") factor = 2 * (n - 1) / n;
  if (kind == "all_gather" || kind == "reduce_scatter" || kind == "all_to_all") {
    factor = (n - 1) / n;
  }
  return {algorithm, algorithm * factor};
}

}  // namespace dslaunch
