#include "trainer/profile/operator_table.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <tuple>

#include "trainer/base/format.h"

namespace dslaunch {
namespace {

constexpr double kNanosecond = 1e-9;
constexpr size_t kWidestName = 56;

// Returns the name of an event's row: "ProfilerStep*" for "ProfilerStep#12", else the event's name.
std::string RowName(const std::string& event) {
  const size_t hash = event.find('#');
  if (hash == std::string::npos || !event.starts_with("ProfilerStep")) return event;
  return event.substr(0, hash) + "*";
}

std::string MillisecondsText(double seconds) { return Format("%.3f ms", seconds * 1e3); }

std::string SignedBytesText(int64_t bytes) {
  if (std::abs(bytes) < 1024) return Format("%lld B", static_cast<long long>(bytes));
  return (bytes < 0 ? "-" : "") + BytesText(std::abs(bytes));
}

// Visits a thread's events in the order of their starts, and keeps a stack of the open events.
class Nesting {
 public:
  explicit Nesting(std::map<std::string, OperatorRow>& rows) : rows_(rows) {}

  void Begin(const RecordedEvent& event) {
    CloseUntil(event.begin_ns);
    OperatorRow& row = rows_[RowName(event.name)];
    const double seconds = static_cast<double>(event.end_ns - event.begin_ns) * kNanosecond;
    ++row.calls;
    row.self_s += seconds;
    if (!open_.empty()) open_.back().row->self_s -= seconds;
    if (std::ranges::none_of(open_, [&](const Open& one) { return one.row == &row; })) {
      row.total_s += seconds;
    }
    open_.push_back({&row, event.end_ns});
  }

  void Allocate(const RecordedAllocation& allocation) {
    CloseUntil(allocation.at_ns);
    if (!open_.empty()) open_.back().row->self_bytes += allocation.bytes;
  }

 private:
  struct Open {
    OperatorRow* row;
    int64_t end_ns;
  };

  void CloseUntil(int64_t now_ns) {
    while (!open_.empty() && open_.back().end_ns <= now_ns) open_.pop_back();
  }

  std::map<std::string, OperatorRow>& rows_;
  std::vector<Open> open_;
};

double Key(const OperatorRow& row, ProfileSort sort) {
  switch (sort) {
    case ProfileSort::kSelfTime:
      return row.self_s;
    case ProfileSort::kTotalTime:
      return row.total_s;
    case ProfileSort::kDeviceTime:
      return row.device_s;
    case ProfileSort::kMemory:
      return static_cast<double>(row.self_bytes);
    case ProfileSort::kCalls:
      return static_cast<double>(row.calls);
  }
  return 0;
}

double Seconds(const RecordedKernel& kernel) {
  return static_cast<double>(kernel.end_ns - kernel.begin_ns) * kNanosecond;
}

void AddKernels(const std::vector<RecordedEvent>& events,
                const std::vector<RecordedKernel>& kernels,
                std::map<std::string, OperatorRow>& rows) {
  std::map<uint64_t, double> seconds;  // seconds of kernels by correlation id
  for (const RecordedKernel& kernel : kernels) {
    seconds[kernel.correlation] += Seconds(kernel);
    OperatorRow& row = rows[kernel.name];
    row.kernel = true;
    ++row.calls;
    row.device_s += Seconds(kernel);
  }
  for (const RecordedEvent& event : events) {
    const auto found = seconds.find(event.correlation);
    if (event.correlation != 0 && found != seconds.end())
      rows[RowName(event.name)].device_s += found->second;
  }
}

}  // namespace

std::vector<OperatorRow> OperatorRows(std::vector<RecordedEvent> events,
                                      const std::vector<RecordedAllocation>& allocations,
                                      ProfileSort sort,
                                      const std::vector<RecordedKernel>& kernels) {
  // Of two events that begin at the same time, the longer contains the shorter, so it is visited
  // first.
  std::ranges::stable_sort(events, [](const RecordedEvent& a, const RecordedEvent& b) {
    return std::tuple(a.thread, a.begin_ns, -a.end_ns) <
           std::tuple(b.thread, b.begin_ns, -b.end_ns);
  });
  std::map<uint64_t, std::vector<RecordedAllocation>> by_thread;
  for (const RecordedAllocation& one : allocations) by_thread[one.thread].push_back(one);
  for (auto& [thread, list] : by_thread) {
    std::ranges::stable_sort(list, {}, &RecordedAllocation::at_ns);
  }
  std::map<std::string, OperatorRow> rows;
  for (size_t i = 0; i < events.size();) {
    const uint64_t thread = events[i].thread;
    const std::vector<RecordedAllocation>& taken = by_thread[thread];
    auto next = taken.begin();
    Nesting nesting(rows);
    for (; i < events.size() && events[i].thread == thread; ++i) {
      if (events[i].async) {
        OperatorRow& row = rows[RowName(events[i].name)];
        ++row.calls;
        row.total_s += static_cast<double>(events[i].end_ns - events[i].begin_ns) * kNanosecond;
        continue;
      }
      for (; next != taken.end() && next->at_ns < events[i].begin_ns; ++next) {
        nesting.Allocate(*next);
      }
      nesting.Begin(events[i]);
    }
    for (; next != taken.end(); ++next) nesting.Allocate(*next);
  }
  AddKernels(events, kernels, rows);
  std::vector<OperatorRow> sorted;
  for (auto& [name, row] : rows) {
    row.name = name;
    sorted.push_back(row);
  }
  std::ranges::stable_sort(sorted, [sort](const OperatorRow& a, const OperatorRow& b) {
    return Key(a, sort) > Key(b, sort);
  });
  return sorted;
}

std::string OperatorTable(const std::vector<OperatorRow>& rows, int64_t most_rows, double wall_s,
                          int64_t steps) {
  const size_t shown = std::min(rows.size(), static_cast<size_t>(most_rows));
  double self_s = 0, device_s = 0;
  size_t width = 8;
  for (const OperatorRow& row : rows) {
    self_s += row.self_s;
    if (row.kernel) device_s += row.device_s;
  }
  for (size_t i = 0; i < shown; ++i) width = std::max(width, rows[i].name.size());
  width = std::min(width, kWidestName);
  std::string text = Format("%-*s %14s %8s %14s %14s %8s %14s", static_cast<int>(width), "operator",
                            "self", "self %", "total", "mean", "calls", "self memory");
  if (device_s > 0) text += Format(" %14s", "device");
  for (size_t i = 0; i < shown; ++i) {
    const OperatorRow& row = rows[i];
    std::string name = row.name;
    if (name.size() > width) name = name.substr(0, width - 3) + "...";
    text +=
        Format("\n%-*s %14s %7.2f%% %14s %14s %8lld %14s", static_cast<int>(width), name.c_str(),
               MillisecondsText(row.self_s).c_str(), self_s > 0 ? 100 * row.self_s / self_s : 0,
               MillisecondsText(row.total_s).c_str(),
               MillisecondsText(row.total_s / static_cast<double>(row.calls)).c_str(),
               static_cast<long long>(row.calls), SignedBytesText(row.self_bytes).c_str());
    if (device_s > 0) text += Format(" %14s", MillisecondsText(row.device_s).c_str());
  }
  if (shown < rows.size()) text += Format("\n... and %zu more", rows.size() - shown);
  const std::string on_device =
      device_s > 0 ? Format(", the device's %s", MillisecondsText(device_s).c_str()) : "";
  text +=
      Format("\nself time of all %s%s, in %s of wall time of %lld %s",
             MillisecondsText(self_s).c_str(), on_device.c_str(), MillisecondsText(wall_s).c_str(),
             static_cast<long long>(steps), steps == 1 ? "step" : "steps");
  return text;
}

}  // namespace dslaunch
