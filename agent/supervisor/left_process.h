// Describes processes that do not end after SIGKILL. They cannot be ended, but their pids and the
// kernel functions in which they sleep point to the broken disk or file server.
#pragma once

#include <google/protobuf/repeated_ptr_field.h>

#include <span>
#include <string>
#include <string_view>

#include "base/os/process_tree.h"
#include "proto/job.pb.h"

namespace dslaunch {

using LeftProcesses = google::protobuf::RepeatedPtrField<pb::LeftProcess>;

// Returns the description of a process. `wchan` is the content of /proc/PID/wchan, which is "0" or
// empty if the kernel does not reveal the function. Pure.
pb::LeftProcess MakeLeftProcess(const ProcessInfo& info, std::string_view wchan);

// Returns the descriptions of the processes, from the current content of /proc.
LeftProcesses DescribeLeft(std::span<const ProcessInfo> processes);

// Returns the processes as a list, such as "123 (python3, D state, waits in nfs_wait), 124 (...)".
// Pure.
std::string LeftText(const LeftProcesses& left);

}  // namespace dslaunch
