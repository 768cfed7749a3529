#include "cli/commands/doctor.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/count.h"
#include "cli/commands/node_visit.h"
#include "cli/transport/hello.h"

namespace dslaunch {
namespace {

constexpr milliseconds kTryPrograms(25'000);  // for each, LibTorch on a cold disk included
constexpr milliseconds kExamine(70'000);
constexpr milliseconds kReach(5'000);
constexpr milliseconds kSlack(2'000);
constexpr milliseconds kLeave(3'000);

int64_t UnixUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// The steps of one connection as they begin. They may begin anew when a node is tried again.
class StepLog {
 public:
  void Begin(SshStep step) {
    const std::lock_guard lock(mutex_);
    std::erase(begun_, step);
    begun_.push_back(step);
  }
  std::vector<SshStep> Begun() const {
    const std::lock_guard lock(mutex_);
    return begun_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<SshStep> begun_;
};

// What one node has to do with, owned by whoever asks it: threads may be late.
struct Patient {
  NodeWay way;
  std::shared_ptr<StepLog> steps = std::make_shared<StepLog>();
};

struct Examination {
  NodeVisit* visit = nullptr;  // never destroyed
  std::optional<pb::NodeReport> report;
  int64_t clock_ahead_us = 0;
  int64_t clock_error_us = 0;
  std::string failure;
  bool failed_to_answer = false;  // it was reached
};

Examination ExaminePatient(const Patient& patient, const AgentBinary& agent,
                           const pb::ExamineRequest& request, Deadline connected) {
  Examination examination;
  const Result<NodeVisit*> visit = NodeVisit::Open(patient.way, agent, connected);
  if (!visit.ok()) {
    examination.failure = visit.error().message;
    return examination;
  }
  examination.visit = *visit;
  const int64_t asked = UnixUs();
  Result<pb::NodeReport> report =
      ExamineNode(**visit, patient.way.target.name, request, Deadline::After(kExamine));
  const int64_t heard = UnixUs();
  if (!report.ok()) {
    examination.failure = report.error().message;
    examination.failed_to_answer = true;
    return examination;
  }
  // As NTP does it: the way there and the way back are taken to last alike.
  const int64_t there = report->received_unix_us() - asked;
  const int64_t back = report->answered_unix_us() - heard;
  examination.clock_ahead_us = (there + back) / 2;
  examination.clock_error_us = std::max<int64_t>(0, (there - back) / 2);
  examination.report = *std::move(report);
  return examination;
}

void TakeSteps(const StepLog& log, const Examination& examination, DoctorNode& node) {
  std::vector<SshStep> begun = log.Begun();
  const bool on_the_way = !examination.report && !examination.failed_to_answer;
  if (on_the_way && !begun.empty()) {
    node.failed_step = StepName(begun.back());
    // A start that finds no agent is not done.
    if (begun.back() == SshStep::kCopyAgent) std::erase(begun, SshStep::kStartAgent);
    begun.pop_back();
  } else if (on_the_way) {
    node.failed_step = "start agent";
  } else if (examination.failed_to_answer) {
    node.failed_step = "ask agent";
  }
  for (const SshStep step : begun) {
    if (step != SshStep::kRunning) node.steps.push_back(StepName(step));
  }
}

// Asks the node that a job's rendezvous would be on to listen, and the others to reach it.
void TryNetwork(const DoctorRequest& request, const std::vector<NodeVisit*>& visits,
                DoctorFacts& facts) {
  for (size_t i = 0; i < visits.size() && !facts.rendezvous; ++i) {
    if (visits[i] != nullptr && !facts.nodes[i].spare) facts.rendezvous = i;
  }
  if (!facts.rendezvous) return;
  pb::ListenRequest listen;
  listen.set_token(MakeNonce());
  listen.set_for_ms(static_cast<uint32_t>((kReach + 2 * kSlack).count()));
  listen.set_cwd(request.cwd);
  Result<pb::ListenReply> heard =
      ListenOnNode(*visits[*facts.rendezvous], facts.nodes[*facts.rendezvous].name, listen,
                   Deadline::After(kReach));
  facts.listen.emplace();
  if (!heard.ok()) return facts.listen->set_refusal(heard.error().message);
  *facts.listen = *std::move(heard);

  pb::ReachRequest reach;
  reach.set_token(listen.token());
  *reach.mutable_endpoints() = facts.listen->endpoints();
  reach.set_patience_ms(static_cast<uint32_t>(kReach.count()));
  reach.set_cwd(request.cwd);
  std::vector<size_t> others;
  std::vector<std::string> names;
  for (size_t i = 0; i < visits.size(); ++i) {
    names.push_back(facts.nodes[i].name);
    if (visits[i] != nullptr && i != *facts.rendezvous) others.push_back(i);
  }
  const Deadline deadline = Deadline::After(kReach + kSlack);
  const auto answers = AskAll<Result<pb::ReachReply>>(
      others.size(), deadline, [visits, names, others, reach, deadline](size_t i) {
        return ReachFromNode(*visits[others[i]], names[others[i]], reach, deadline);
      });
  for (size_t i = 0; i < others.size(); ++i) {
    DoctorNode& node = facts.nodes[others[i]];
    if (!answers[i])
      node.reach_failure = "it did not answer in time; run doctor again";
    else if (answers[i]->ok())
      node.reach = **answers[i];
    else
      node.reach_failure = answers[i]->error().message;
  }
}

// Ends the visits and waits until the visitors are gone, so that nothing of the doctor is left.
void Leave(const std::vector<NodeVisit*>& visits) {
  std::vector<NodeVisit*> open = visits;
  std::erase(open, nullptr);
  for (NodeVisit* const visit : open) visit->End();
  const Deadline deadline = Deadline::After(kLeave);
  (void)AskAll<bool>(open.size(), deadline,
                     [open, deadline](size_t i) { return open[i]->WaitEnd(deadline); });
}

DoctorFacts FactsBefore(const DoctorRequest& request, const AgentBinary& agent) {
  DoctorFacts facts;
  facts.launcher = request.plan.launcher;
  facts.version = DSLAUNCH_VERSION;
  facts.build_id = agent.build_id;
  facts.cwd = request.cwd;
  facts.device = request.device;
  facts.world_size = request.plan.world_size;
  facts.has_trainer = ::access((request.bin_dir + "/dslaunch-train").c_str(), X_OK) == 0;
  facts.trainer_needed = request.trains;
  for (const PlannedNode& planned : request.plan.nodes) {
    DoctorNode node;
    node.name = planned.name;
    node.slots = planned.slots;
    node.spare = planned.spare;
    facts.nodes.push_back(std::move(node));
  }
  if (facts.launcher == Launcher::kLocal) {  // all of them are this machine
    facts.nodes.resize(1);
    facts.nodes.front().name = "localhost";
    facts.nodes.front().slots = request.plan.world_size;
  }
  return facts;
}

DoctorFacts ExamineAll(const DoctorRequest& request, const AgentBinary& agent) {
  DoctorFacts facts = FactsBefore(request, agent);
  std::vector<Patient> patients(facts.nodes.size());
  for (size_t i = 0; i < patients.size(); ++i) {
    const PlannedNode& planned = request.plan.nodes[i];
    Patient& patient = patients[i];
    patient.way = {
        facts.launcher, {planned.name, planned.host, planned.port, planned.user}, request.ssh};
    patient.way.ssh.on_step = [steps = patient.steps](SshStep step) { steps->Begin(step); };
  }
  pb::ExamineRequest question;
  question.set_patience_ms(static_cast<uint32_t>(kTryPrograms.count()));
  question.set_bin_dir(request.bin_dir);
  const Deadline connected = Deadline::After(request.connect_timeout);
  const auto answers =
      AskAll<Examination>(patients.size(), Deadline::At(connected.when() + kExamine + kSlack),
                          [patients, agent, question, connected](size_t i) {
                            return ExaminePatient(patients[i], agent, question, connected);
                          });

  std::vector<NodeVisit*> visits(patients.size(), nullptr);
  for (size_t i = 0; i < patients.size(); ++i) {
    Examination late;
    late.failure = "it did not answer in time; check that the node is not overloaded";
    const Examination& examination = answers[i] ? *answers[i] : late;
    DoctorNode& node = facts.nodes[i];
    node.report = examination.report;
    node.failure = examination.failure;
    node.clock_ahead_us = examination.clock_ahead_us;
    node.clock_error_us = examination.clock_error_us;
    TakeSteps(*patients[i].steps, examination, node);
    visits[i] = examination.visit;
  }
  std::vector<NodeVisit*> able = visits;
  for (size_t i = 0; i < able.size(); ++i) {
    if (!facts.nodes[i].report) able[i] = nullptr;
  }
  if (facts.launcher == Launcher::kSsh) TryNetwork(request, able, facts);
  Leave(visits);
  return facts;
}

}  // namespace

int RunDoctor(const DoctorRequest& request, const AgentBinary& agent, Terminal& terminal) {
  terminal.SetLive("dslaunch doctor: looking at " + Count(request.plan.nodes.size(), "node"));
  terminal.Flush();
  const DoctorFacts facts = ExamineAll(request, agent);
  terminal.SetLive("");
  const std::vector<Finding> findings = Diagnose(facts);
  const std::string text =
      request.json ? DoctorJson(facts, findings) : DoctorTable(facts, findings);
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    terminal.Out(std::string_view(text).substr(start, end - start));
    start = end + 1;
  }
  return ToInt(AnyFails(findings) ? ExitCode::kUnavailable : ExitCode::kOk);
}

}  // namespace dslaunch
