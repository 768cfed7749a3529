#include "trainer/comm/rank_failure.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "trainer/base/by_rank.h"

namespace dslaunch {

using nlohmann::json;

std::string FormatFailure(const TrainError& failure) {
  return json{{"code", failure.exit_code()}, {"failure", failure.what()}}.dump(
      -1, ' ', false, json::error_handler_t::replace);
}

std::string FailureOf(const std::function<void()>& action) {
  try {
    action();
    return "";
  } catch (const TrainError& error) {
    return FormatFailure(error);
  } catch (const std::exception& error) {
    return FormatFailure(TrainError(ExitCode::kInternal, error.what()));
  }
}

void ThrowIfFailure(const std::string& text, int rank) {
  const json parsed = json::parse(text);
  if (!parsed.contains("failure")) return;
  throw TrainError(static_cast<ExitCode>(parsed["code"].get<int>()),
                   "rank " + std::to_string(rank) + ": " + parsed["failure"].get<std::string>());
}

void ThrowFirstFailure(const std::vector<std::string>& failures) {
  const auto first = std::find_if(failures.begin(), failures.end(),
                                  [](const std::string& failure) { return !failure.empty(); });
  if (first == failures.end()) return;
  if (GroupRanks(failures).size() > 1) {
    ThrowIfFailure(*first, static_cast<int>(first - failures.begin()));
  }
  const json parsed = json::parse(*first);
  throw TrainError(static_cast<ExitCode>(parsed["code"].get<int>()),
                   parsed["failure"].get<std::string>());
}

}  // namespace dslaunch
