#include "cli/plan/job_spec.h"

#include <filesystem>
#include <optional>
#include <utility>

#include "cli/output/shown_output.h"
#include "cli/plan/job_policy.h"
#include "cli/plan/job_program.h"

namespace dslaunch {
namespace {

pb::FilteredLogs FilteredLogsOf(const LaunchOptions& options, const std::string& tag_template) {
  const ShownOutput shown = {options.shown_ranks, options.local_ranks_shown, options.log_only};
  pb::FilteredLogs filtered;
  *filtered.mutable_ranks() = shown.ToProto();
  filtered.mutable_stdout_texts()->Assign(options.stdout_filters.begin(),
                                          options.stdout_filters.end());
  filtered.mutable_stderr_texts()->Assign(options.stderr_filters.begin(),
                                          options.stderr_filters.end());
  filtered.set_tag_template(tag_template);
  filtered.set_role(options.role);
  return filtered;
}

}  // namespace

pb::Device DeviceOf(DeviceChoice choice) {
  static_assert(static_cast<int>(DeviceChoice::kCuda) == pb::DEVICE_CUDA &&
                static_cast<int>(DeviceChoice::kMlu) == pb::DEVICE_MLU);
  return static_cast<pb::Device>(choice);
}

Result<pb::JobSpec> MakeJobSpec(const LaunchOptions& options, const LaunchPlan& plan,
                                const JobSpecInfo& info) {
  pb::JobSpec job;
  job.set_job_id(info.job_id);
  DSL_TRY_ASSIGN(*job.mutable_policy(), MakePolicy(options, plan));
  pb::RankSpec& ranks = *job.mutable_ranks();
  DSL_TRY_ASSIGN(*ranks.mutable_options(), MakeRankOptions(options));
  if (!options.log_dir.empty())
    ranks.set_log_dir((std::filesystem::path(info.cwd) / options.log_dir).string());
  if (options.save_pid) ranks.set_save_pid(info.pid);
  *ranks.mutable_filtered() = FilteredLogsOf(options, info.tag_template);
  ranks.set_description(info.description);
  *job.mutable_timeouts() = MakeTimeouts(options);
  if (std::optional<pb::MeasureRequest> check = MakeNodeCheck(options, ranks.log_dir()))
    *job.mutable_node_check() = *std::move(check);
  job.set_device(DeviceOf(options.device));
  job.set_only_cuda(options.mode == LaunchOptions::Mode::kTrain);
  const Way way = RowOf(plan.launcher).way;
  job.set_local(way == Way::kHere);
  job.set_may_share_machine(way != Way::kSsh);
  job.set_network_interface(options.network_interface);
  job.set_master_port(static_cast<uint32_t>(options.master_port));
  job.set_pass_master_port(options.master_listen_fd);
  job.set_rdzv_port(static_cast<uint32_t>(options.rdzv_port));
  job.set_stop_signal(options.stop_signal);
  job.set_detachable(options.detach);
  job.set_log_max_bytes(static_cast<uint64_t>(options.log_max_mb) << 20);
  return job;
}

pb::PrepareRequest PrepareRequestFor(const pb::PrepareRequest& common, const LaunchPlan& plan,
                                     size_t index) {
  const Host& node = plan.nodes[index];
  pb::PrepareRequest request = common;
  request.set_node_index(static_cast<uint32_t>(index));
  pb::Program& program = *request.mutable_job()->mutable_ranks()->mutable_program();
  program = ProgramOn(node, std::move(program));
  request.mutable_devices()->Assign(node.devices.begin(), node.devices.end());
  return request;
}

}  // namespace dslaunch
