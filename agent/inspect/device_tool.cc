#include "agent/inspect/device_tool.h"

#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "agent/host/program.h"
#include "base/errno_text.h"
#include "base/os/brief_run.h"
#include "base/text/signal_name.h"

namespace dslaunch {
namespace {

std::string TroubleOf(const BriefRun& run) {
  switch (run.end) {
    case BriefRun::End::kNotStarted:
      return ErrnoText(run.number);
    case BriefRun::End::kTimedOut:
      return "the driver does not answer";
    case BriefRun::End::kSignalled:
      return "it was ended by " + SignalName(run.number);
    case BriefRun::End::kExited:
      break;
  }
  return run.number == 0 ? "" : "exit code " + std::to_string(run.number);
}

}  // namespace

std::string DeviceToolTrouble(const AcceleratorRow& row, milliseconds patience) {
  const std::string tool(row.tool);
  const Result<std::string> path = FindExecutable(tool, NodeEnvironment(), "/", "");
  if (!path.ok()) return "";
  std::vector<std::string> words = {*path};
  for (const std::string_view argument : row.tool_arguments) words.emplace_back(argument);
  auto promise = std::make_shared<std::promise<std::string>>();
  std::future<std::string> answer = promise->get_future();
  std::thread([words = std::move(words), promise, deadline = Deadline::After(patience)] {
    promise->set_value(TroubleOf(RunBriefly(words, NodeEnvironment(), deadline)));
  }).detach();
  // The thread's answer on timeout has more detail, so this waits longer than the thread's own
  // limit.
  const bool has_answered =
      answer.wait_for(patience + milliseconds(200)) == std::future_status::ready;
  const std::string trouble = has_answered ? answer.get() : "the driver does not answer";
  return trouble.empty() ? "" : tool + ": " + trouble;
}

}  // namespace dslaunch
