// Processes that do not end after SIGKILL, as they are reported: they cannot be ended, but the pid
// and what it waits for lead to the broken disk or file server.
#pragma once

#include <google/protobuf/repeated_ptr_field.h>

#include <span>
#include <string>
#include <string_view>

#include "base/os/process_tree.h"
#include "proto/job.pb.h"

namespace dslaunch {

using LeftProcesses = google::protobuf::RepeatedPtrField<pb::LeftProcess>;

// `wchan` is the content of /proc/PID/wchan, "0" or empty when the kernel does not say. Pure.
pb::LeftProcess MakeLeftProcess(const ProcessInfo& info, std::string_view wchan);

// The same for each of them, by what /proc says now.
LeftProcesses DescribeLeft(std::span<const ProcessInfo> processes);

// "123 (python3, D state, waits in nfs_wait), 124 (...)". Pure.
std::string LeftText(const LeftProcesses& left);

}  // namespace dslaunch
