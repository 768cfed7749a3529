// Detects that a job stands still, requests the stacks of its ranks from the nodes, and judges the
// answers. Sends only through the roster, and is driven by the coordinator.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "proto/rendezvous.pb.h"
#include "rendezvous/culprit.h"
#include "rendezvous/hang.h"
#include "rendezvous/roster.h"
#include "rendezvous/standstill.h"

namespace dslaunch {

class StandstillCheck {
 public:
  struct Verdict {
    // Reason such as "no rank has moved for 600 s (--hang_s 600)", or HangDecision::reason.
    std::string reason;
    Culprit culprit;
    std::string text;            // reason and evidence, for the user
    bool is_standstill = false;  // whether no rank shows a sign of life
  };

  // Begins another attempt.
  void Clear() { *this = {}; }
  // Records a report. Returns whether Check may make a decision, because the time of the rank is
  // close to a limit. Precondition: the rank of the report belongs to the attempt.
  bool OnReport(const pb::Stillness& report, const pb::Policy& policy, Clock::time_point now);
  // Informs the watch that this process could not read reports; see StandstillWatch::OnStall.
  void OnStall(Clock::time_point now) { watch_.OnStall(now); }
  // Returns whether the user was informed of a standstill that still continues.
  bool is_reported() const { return watch_.is_reported(); }
  // Records an answer. Returns whether it was the last answer, so that Check has a verdict.
  bool OnInspected(const pb::Inspected& inspected);

  // Requests stacks from the nodes because the ranks complete no steps; Check returns the verdict.
  // Does nothing if the user was informed that the job stands still.
  void OnHang(const HangDecision& hang, Roster& roster, Clock::time_point now);

  // Requests stacks from the nodes shortly before the ranks count as standing still. If the stacks
  // do not name a rank for sure, also requests the records of PyTorch's Flight Recorder. Returns
  // the verdict at the end of the limit, or later when all nodes have answered or kAnswerWithin or
  // kRecordsWithin has passed. Returns each standstill once.
  //
  // Returns nullopt if a rank showed a sign of life in the meantime or no rank waits for another;
  // requests the stacks again later. Notifies the user when the ranks of a standstill move again.
  std::optional<Verdict> Check(const pb::Policy& policy, const pb::Timeouts& timeouts,
                               Roster& roster, Clock::time_point now);

  static constexpr milliseconds kAnswerWithin{1'000};
  static constexpr milliseconds kRecordsWithin{8'000};
  // Number of times, and interval, at which ranks that spin must be seen in an exchange.
  static constexpr int kSpinLooks = 3;
  static constexpr milliseconds kBetweenSpinLooks{300};

 private:
  struct Inquiry {
    Inquiry(uint64_t number, Clock::time_point end) : look(number), until(end) {}

    uint64_t look;  // number of the inquiry (Inspect.look)
    Clock::time_point until;
    std::set<uint32_t> awaited;  // ranks that have not answered
    std::map<uint32_t, pb::RankStacks> stacks;
    bool asks_flight = false;  // whether the answers for `flights` are awaited
    std::map<uint32_t, pb::FlightRecord> flights;
    std::optional<pb::RasReport> ras;  // first report without `trouble`
    // Nullopt if the inquiry was made because the ranks show no sign of life.
    std::optional<HangDecision> hang;
  };

  void Ask(Roster& roster, Clock::time_point now);
  void AskFlight(Roster& roster, Clock::time_point now);
  // Sends `inspect` to the running ranks; requests for records skip ranks whose stacks are not
  // known. Returns the ranks to which it was sent.
  std::set<uint32_t> SendInquiry(Roster& roster, const pb::Inspect& inspect) const;
  std::vector<RankEvidence> Evidence(const Roster& roster, milliseconds limit) const;
  // Returns the verdict for the answers; nullopt if there is none, or if records are requested
  // first.
  std::optional<Culprit> JudgeAnswers(const StandstillDecision& decision, Roster& roster,
                                      Clock::time_point now);
  // Returns whether the stacks decide, although some ranks use CPU time. Schedules another inquiry
  // if further stacks might decide.
  bool IsConfirmed(const Culprit& culprit, const std::vector<RankEvidence>& ranks,
                   Clock::time_point now);
  // Returns the time of the next inquiry after an inquiry without a verdict.
  Clock::time_point NextInquiry(const std::vector<RankEvidence>& ranks, milliseconds limit,
                                Clock::time_point now) const;

  StandstillWatch watch_;
  std::optional<Inquiry> inquiry_;
  std::optional<Culprit> culprit_;  // verdict that was found before the end of the limit
  uint64_t last_look_ = 0;
  std::vector<uint32_t> suspects_;  // ranks of the last verdict that waits for confirmation
  int confirmations_ = 0;
  bool user_waits_ = false;  // whether the user was informed of a standstill, but not of its end
  Clock::time_point ask_after_;  // no inquiry begins before this time
};

}  // namespace dslaunch
