#include "base/text/cpu_list.h"

#include <charconv>
#include <optional>

#include "base/text/sanitize.h"

namespace dslaunch {
namespace {

constexpr int kMaxCpu = 1 << 16;

std::optional<int> ReadCpu(std::string_view text) {
  int cpu = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), cpu);
  const bool whole = status == std::errc() && end == text.data() + text.size();
  return whole && cpu >= 0 && cpu <= kMaxCpu ? std::optional(cpu) : std::nullopt;
}

}  // namespace

Result<std::vector<int>> ParseCpuList(std::string_view text) {
  std::vector<int> cpus;
  for (std::string_view rest = text;;) {
    const size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    const size_t dash = part.find('-');
    const std::optional<int> first = ReadCpu(part.substr(0, dash));
    const std::optional<int> last =
        dash == std::string_view::npos ? first : ReadCpu(part.substr(dash + 1));
    const std::string quoted = Quoted(part);
    if (!first || !last) {
      return Error{ExitCode::kUsage,
                   quoted + " is neither a number nor a range such as 3-5; no blanks belong there"};
    }
    if (*last < *first) return Error{ExitCode::kUsage, quoted + " ends before it begins"};
    if (!cpus.empty() && *first <= cpus.back()) {
      return Error{ExitCode::kUsage, quoted + " does not come after " +
                                         std::to_string(cpus.back()) +
                                         "; give the numbers in ascending order, each once"};
    }
    for (int cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
    if (comma == std::string_view::npos) return cpus;
    rest.remove_prefix(comma + 1);
  }
}

std::string CpuListText(const std::vector<int>& cpus) {
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    text += (text.empty() ? "" : ",") + std::to_string(cpus[i]);
    if (end - i > 1) text += "-" + std::to_string(cpus[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace dslaunch
