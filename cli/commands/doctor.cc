#include "cli/commands/doctor.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "base/count.h"
#include "base/mutex.h"
#include "cli/commands/node_inspection.h"
#include "cli/commands/version.h"
#include "cli/plan/job_program.h"
#include "cli/transport/hello.h"

namespace dslaunch {
namespace {

// Limit for each program that doctor tries to run. LibTorch loads slowly from a cold disk, so the
// limit is long.
constexpr milliseconds kTryPrograms(25'000);
constexpr milliseconds kNodeInfoTimeout(70'000);
constexpr milliseconds kReach(5'000);
constexpr milliseconds kSlack(2'000);

int64_t UnixUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Records the steps of a connection as they begin. A step may begin again when the connection is
// retried. Thread-safe.
class StepLog {
 public:
  void Begin(ConnectStep step) {
    const MutexLock lock(mutex_);
    std::erase(begun_, step);
    begun_.push_back(step);
  }
  std::vector<ConnectStep> Begun() const {
    const MutexLock lock(mutex_);
    return begun_;
  }

 private:
  mutable Mutex mutex_;
  std::vector<ConnectStep> begun_ DSL_GUARDED_BY(mutex_);
};

// The request to examine one node. The thread that examines the node may finish late, so the thread
// owns this object.
struct Patient {
  NodeWay way;
  std::shared_ptr<StepLog> steps = std::make_shared<StepLog>();
};

// Inspections indexed by node; null if the node was not reached.
using Inspections = std::vector<std::shared_ptr<NodeInspection>>;

struct PatientAnswer {
  // Inspection of the node; null if the node was not reached.
  std::shared_ptr<NodeInspection> inspection;
  std::optional<pb::NodeInfo> report;
  int64_t clock_ahead_us = 0;
  int64_t clock_error_us = 0;
  std::string failure;
  bool failed_to_answer = false;  // true if the node was reached but did not answer
};

PatientAnswer AskPatient(const Patient& patient, const AgentBinary& agent,
                         const pb::NodeInfoRequest& request, Deadline connected) {
  PatientAnswer answer;
  Result<std::unique_ptr<NodeInspection>> inspection =
      NodeInspection::Open(patient.way, agent, connected);
  if (!inspection.ok()) {
    answer.failure = inspection.error().message;
    return answer;
  }
  answer.inspection = *std::move(inspection);
  const int64_t asked = UnixUs();
  Result<pb::NodeInfo> report = RequestNodeInfo(*answer.inspection, patient.way.target.name,
                                                request, Deadline::After(kNodeInfoTimeout));
  const int64_t answered = UnixUs();
  if (!report.ok()) {
    answer.failure = report.error().message;
    answer.failed_to_answer = true;
    return answer;
  }
  // Only the sum of both directions can be measured, so both directions are assumed to take equally
  // long, as in NTP.
  const int64_t there = report->received_unix_us() - asked;
  const int64_t back = report->answered_unix_us() - answered;
  answer.clock_ahead_us = (there + back) / 2;
  answer.clock_error_us = std::max<int64_t>(0, (there - back) / 2);
  answer.report = *std::move(report);
  return answer;
}

void AddSteps(const StepLog& log, const PatientAnswer& answer, DoctorNode& node) {
  std::vector<ConnectStep> begun = log.Begun();
  const bool on_the_way = !answer.report && !answer.failed_to_answer;
  if (on_the_way && !begun.empty()) {
    node.failed_step = StepName(begun.back());
    // The agent was not found and is copied, so its start is not listed as completed.
    if (begun.back() == ConnectStep::kCopyAgent) std::erase(begun, ConnectStep::kStartAgent);
    begun.pop_back();
  } else if (on_the_way) {
    node.failed_step = "start agent";
  } else if (answer.failed_to_answer) {
    node.failed_step = "ask agent";
  }
  for (const ConnectStep step : begun) {
    if (step != ConnectStep::kRunning) node.steps.push_back(StepName(step));
  }
}

// Makes the node that would host the rendezvous listen, and makes the other nodes connect to it.
void TryNetwork(const DoctorRequest& request, const Inspections& inspections, DoctorInfo& info) {
  for (size_t i = 0; i < inspections.size() && !info.rendezvous; ++i) {
    if (inspections[i] != nullptr && !info.nodes[i].spare) info.rendezvous = i;
  }
  if (!info.rendezvous) return;
  pb::ListenRequest listen;
  listen.set_token(MakeNonce());
  listen.set_for_ms(static_cast<uint32_t>((kReach + 2 * kSlack).count()));
  listen.set_cwd(request.cwd);
  Result<pb::ListenReply> reply =
      ListenOnNode(*inspections[*info.rendezvous], info.nodes[*info.rendezvous].name, listen,
                   Deadline::After(kReach));
  info.listen.emplace();
  if (!reply.ok()) return info.listen->set_refusal(reply.error().message);
  *info.listen = *std::move(reply);

  pb::ReachRequest reach;
  reach.set_token(listen.token());
  *reach.mutable_endpoints() = info.listen->endpoints();
  reach.set_patience_ms(static_cast<uint32_t>(kReach.count()));
  reach.set_cwd(request.cwd);
  std::vector<size_t> others;
  std::vector<std::string> names;
  for (size_t i = 0; i < inspections.size(); ++i) {
    names.push_back(info.nodes[i].name);
    if (inspections[i] != nullptr && i != *info.rendezvous) others.push_back(i);
  }
  const Deadline deadline = Deadline::After(kReach + kSlack);
  const auto answers = AskAll<Result<pb::ReachReply>>(
      others.size(), deadline, [inspections, names, others, reach, deadline](size_t i) {
        return ReachFromNode(*inspections[others[i]], names[others[i]], reach, deadline);
      });
  for (size_t i = 0; i < others.size(); ++i) {
    DoctorNode& node = info.nodes[others[i]];
    if (!answers[i])
      node.reach_failure = "it did not answer in time; run doctor again";
    else if (answers[i]->ok())
      node.reach = **answers[i];
    else
      node.reach_failure = answers[i]->error().message;
  }
}

// Ends the inspections and waits until the inspectors have exited, so that doctor leaves no process
// on any node.
void EndInspections(const Inspections& inspections) {
  Inspections open = inspections;
  std::erase(open, nullptr);
  for (const auto& inspection : open) inspection->End();
  const Deadline deadline = Deadline::After(kLeaveTimeout);
  (void)AskAll<bool>(open.size(), deadline,
                     [open, deadline](size_t i) { return open[i]->WaitEnd(deadline); });
}

DoctorInfo InfoBefore(const DoctorRequest& request, const AgentBinary& agent) {
  DoctorInfo info;
  info.launcher = request.plan.launcher;
  info.version = DSLAUNCH_VERSION;
  info.build_id = agent.build_id;
  for (const AgentBinary& other : agent.others) info.other_builds.push_back(other.build_id);
  info.cwd = request.cwd;
  info.python_folder = request.python_folder;
  info.device = request.device;
  info.world_size = request.plan.world_size();
  info.has_trainer = CheckTrainer(request.bin_dir).ok();
  info.trainer_needed = request.trains;
  info.jobs = request.jobs;
  info.now_unix_ms = UnixMs();
  for (const Host& planned : request.plan.nodes) {
    DoctorNode node;
    node.name = planned.name;
    node.slots = planned.slots;
    node.spare = planned.spare;
    info.nodes.push_back(std::move(node));
  }
  if (info.launcher == Launcher::kLocal) {  // one report is enough for this machine
    info.nodes.resize(1);
    info.nodes.front().name = "localhost";
    info.nodes.front().slots = request.plan.world_size();
  }
  return info;
}

// Returns the nodes to measure. A node without a report counts as not reached.
std::vector<BenchNode> NodesToBench(const DoctorInfo& info, const Inspections& able) {
  const bool wants_gpus = info.device != DeviceChoice::kCpu &&
                          std::ranges::any_of(info.nodes, [](const DoctorNode& node) {
                            return node.report && node.report->gpus().visible() > 0;
                          });
  std::vector<BenchNode> nodes;
  for (size_t i = 0; i < able.size(); ++i) {
    const auto slots = static_cast<uint32_t>(std::max(info.nodes[i].slots, 1));
    nodes.push_back({info.nodes[i].name, able[i], slots, wants_gpus ? slots : 0});
  }
  return nodes;
}

}  // namespace

DoctorInfo ExamineNodes(const DoctorRequest& request, const AgentBinary& agent) {
  DoctorInfo info = InfoBefore(request, agent);
  const std::map<std::string, SlurmShare>& shares = request.plan.slurm_shares;
  std::vector<Patient> patients(info.nodes.size());
  for (size_t i = 0; i < patients.size(); ++i) {
    Patient& patient = patients[i];
    patient.way = {info.launcher, request.plan.nodes[i], request.ssh, request.plan.exec_command};
    const auto share = shares.find(request.plan.nodes[i].host);
    if (share != shares.end()) patient.way.slurm_shares.insert(*share);
    patient.way.ssh.on_step = [steps = patient.steps](ConnectStep step) { steps->Begin(step); };
  }
  pb::NodeInfoRequest question;
  question.set_patience_ms(static_cast<uint32_t>(kTryPrograms.count()));
  question.set_bin_dir(request.bin_dir);
  if (!request.python_folder.empty()) question.set_python(request.python_folder + "/bin/python3");
  std::vector<pb::NodeInfoRequest> questions(patients.size(), question);
  for (size_t i = 0; request.program && i < patients.size(); ++i)
    *questions[i].mutable_program() = ProgramOn(request.plan.nodes[i], *request.program);
  const Deadline connected = Deadline::After(request.connect_timeout);
  const auto answers = AskAll<PatientAnswer>(
      patients.size(), Deadline::At(connected.when() + kNodeInfoTimeout + kSlack),
      [patients, agent, questions, connected](size_t i) {
        return AskPatient(patients[i], agent, questions[i], connected);
      });

  Inspections inspections(patients.size());
  for (size_t i = 0; i < patients.size(); ++i) {
    PatientAnswer late;
    late.failure = "it did not answer in time; check that the node is not overloaded";
    const PatientAnswer& answer = answers[i] ? *answers[i] : late;
    DoctorNode& node = info.nodes[i];
    node.report = answer.report;
    node.failure = answer.failure;
    node.clock_ahead_us = answer.clock_ahead_us;
    node.clock_error_us = answer.clock_error_us;
    AddSteps(*patients[i].steps, answer, node);
    inspections[i] = answer.inspection;
  }
  Inspections able = inspections;
  for (size_t i = 0; i < able.size(); ++i) {
    if (!info.nodes[i].report) able[i] = nullptr;
  }
  if (info.launcher == Launcher::kSsh) TryNetwork(request, able, info);
  if (request.bench) info.bench = request.bench(NodesToBench(info, able));
  EndInspections(inspections);
  return info;
}

int RunDoctor(const DoctorRequest& request, const AgentBinary& agent, Terminal& terminal) {
  terminal.SetLive({"dslaunch doctor: looking at " + Count(request.plan.nodes.size(), "node")});
  terminal.Flush();
  const DoctorInfo info = ExamineNodes(request, agent);
  terminal.SetLive({});
  const std::vector<Finding> findings = Diagnose(info);
  const std::string text = request.json ? DoctorJson(info, findings) : DoctorTable(info, findings);
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    terminal.Out(std::string_view(text).substr(start, end - start));
    start = end + 1;
  }
  return ToInt(AnyFails(findings) ? ExitCode::kUnavailable : ExitCode::kOk);
}

}  // namespace dslaunch
