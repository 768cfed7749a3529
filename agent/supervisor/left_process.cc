#include "agent/supervisor/left_process.h"

#include "base/os/proc_text.h"

namespace dslaunch {

pb::LeftProcess MakeLeftProcess(const ProcessInfo& info, std::string_view wchan) {
  pb::LeftProcess left;
  left.set_pid(info.id.pid);
  left.set_state(std::string(1, info.state));
  left.set_command(info.command);
  if (wchan != "0") left.set_waits_in(std::string(wchan));
  return left;
}

LeftProcesses DescribeLeft(std::span<const ProcessInfo> processes) {
  LeftProcesses left;
  for (const ProcessInfo& info : processes) {
    const std::string wchan = "/proc/" + std::to_string(info.id.pid) + "/wchan";
    *left.Add() = MakeLeftProcess(info, ReadWhole(wchan).value_or(""));
  }
  return left;
}

std::string LeftText(const LeftProcesses& left) {
  std::string text;
  for (const pb::LeftProcess& process : left) {
    if (!text.empty()) text += ", ";
    text += std::to_string(process.pid()) + " (" + process.command() + ", " + process.state() +
            " state" + (process.waits_in().empty() ? "" : ", waits in " + process.waits_in()) + ")";
  }
  return text;
}

}  // namespace dslaunch
