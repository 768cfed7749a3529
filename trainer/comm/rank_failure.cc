#include "trainer/comm/rank_failure.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text/sanitize.h"
#include "trainer/base/by_rank.h"

namespace dslaunch {

using nlohmann::json;

namespace {

constexpr size_t kMaxReceivedBytes = 1900;

// Throws a failure that another process has reported. The report is not trusted, so its code is
// checked, which keeps this process from exiting with success, and its text is sanitized and cut.
[[noreturn]] void ThrowReceived(const json& failure, const std::string& prefix) {
  const json& code = failure.at("code");
  throw TrainError(static_cast<ExitCode>(FailureCode(code.is_number_integer() ? code.get<int>() : 0,
                                                     ExitCode::kInternal)),
                   prefix + Truncate(failure.at("failure").get<std::string>(), kMaxReceivedBytes));
}

}  // namespace

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
  ThrowReceived(parsed, "rank " + std::to_string(rank) + ": ");
}

void ThrowFirstFailure(const std::vector<std::string>& failures) {
  const auto first = std::find_if(failures.begin(), failures.end(),
                                  [](const std::string& failure) { return !failure.empty(); });
  if (first == failures.end()) return;
  if (GroupRanks(failures).size() > 1) {
    ThrowIfFailure(*first, static_cast<int>(first - failures.begin()));
  }
  ThrowReceived(json::parse(*first), "");
}

}  // namespace dslaunch
