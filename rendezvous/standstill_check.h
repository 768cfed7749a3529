// Detects that the ranks of a job stand still, requests their stacks from the nodes, and judges the
// answers. The coordinator calls it; messages are sent only through the roster.
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
    std::string text;            // reason and evidence for the user
    bool is_standstill = false;  // whether no rank shows a sign of life
  };

  // Removes all records, because another attempt begins.
  void Clear() { *this = {}; }
  // Records a report. Returns whether the rank is close to a limit, so that Check() should be
  // called. Precondition: the rank of the report belongs to the attempt.
  bool OnReport(const pb::Stillness& report, const pb::Policy& policy, Clock::time_point now);
  // Excludes the time until `now`, in which this process could not read reports.
  void OnStall(Clock::time_point now) { watch_.OnStall(now); }
  // Returns whether the user was notified of a standstill that still continues.
  bool is_reported() const { return watch_.is_reported(); }

  // Records the answer of a rank. Returns whether this was the last missing answer, so that Check()
  // can judge the answers. Ignores an answer to an earlier request.
  bool OnInspected(const pb::Inspected& inspected);

  // Requests stacks from the nodes because the ranks complete no steps. Check() returns the verdict
  // once the answers have arrived. Does nothing if the user was already notified that the job
  // stands still.
  void OnHang(const HangDecision& hang, Roster& roster, Clock::time_point now);

  // Requests stacks from the nodes shortly before the ranks count as standing still. If the stacks
  // do not name a rank for sure, also requests the records of PyTorch's Flight Recorder. Returns
  // the verdict once the limit has passed and the answers are complete or overdue (kAnswerWithin
  // for stacks, kRecordsWithin for records). Returns the verdict on each standstill once.
  //
  // Returns nullopt otherwise. If the stacks show that no rank waits for another, requests the
  // stacks again later. Notifies the user when the ranks show signs of life again after a
  // standstill.
  std::optional<Verdict> Check(const pb::Policy& policy, const pb::Timeouts& timeouts,
                               Roster& roster, Clock::time_point now);

  // Time limits for the nodes' answers: for stacks, and for records of Flight Recorder.
  static constexpr milliseconds kAnswerWithin{1'000};
  static constexpr milliseconds kRecordsWithin{8'000};
  // Number of equal verdicts that confirm a standstill in which some ranks use CPU time, and the
  // time between two of their inquiries.
  static constexpr int kSpinLooks = 3;
  static constexpr milliseconds kBetweenSpinLooks{300};

 private:
  // A request for the stacks of the running ranks, and the answers so far.
  struct Inquiry {
    Inquiry(uint64_t number, Clock::time_point end) : look(number), until(end) {}

    uint64_t look;               // number of the inquiry, as in Inspect.look
    Clock::time_point until;     // time after which missing answers are not awaited
    std::set<uint32_t> awaited;  // ranks whose stacks have not arrived
    std::map<uint32_t, pb::RankStacks> stacks;
    // Whether the records of Flight Recorder were requested after the stacks.
    bool asks_flight = false;
    std::map<uint32_t, pb::FlightRecord> flights;
    std::optional<pb::RasReport> ras;  // first report of NCCL's RAS without `trouble`
    // Nullopt if the inquiry was made because the ranks show no sign of life.
    std::optional<HangDecision> hang;
  };

  void Ask(Roster& roster, Clock::time_point now);
  void AskFlight(Roster& roster, Clock::time_point now);
  // Sends `inspect` to the running ranks. Skips ranks without known stacks if records are
  // requested. Returns the ranks to which the request was sent.
  std::set<uint32_t> SendInquiry(Roster& roster, const pb::Inspect& inspect) const;
  std::vector<RankEvidence> Evidence(const Roster& roster, milliseconds limit) const;

  // Returns the verdict for the answers; nullopt if no rank waits for another, if the verdict must
  // be confirmed by another inquiry, or if the records of Flight Recorder are requested first.
  std::optional<Culprit> JudgeAnswers(const StandstillDecision& decision, Roster& roster,
                                      Clock::time_point now);
  // Returns whether the stacks decide, although some ranks use CPU time. Schedules another inquiry
  // if further stacks might confirm the verdict.
  bool IsConfirmed(const Culprit& culprit, const std::vector<RankEvidence>& ranks,
                   Clock::time_point now);

  // Returns the time at which the next inquiry begins if the current inquiry has no verdict.
  Clock::time_point NextInquiry(const std::vector<RankEvidence>& ranks, milliseconds limit,
                                Clock::time_point now) const;

  StandstillWatch watch_;
  std::optional<Inquiry> inquiry_;
  std::optional<Culprit> culprit_;  // verdict that was found before the limit was reached
  uint64_t last_look_ = 0;
  std::vector<uint32_t> suspects_;  // ranks of the last verdict, which the next inquiry may confirm
  int confirmations_ = 0;
  bool user_waits_ = false;  // whether the user was notified of a standstill, but not of its end
  Clock::time_point ask_after_;  // no inquiry begins before this time
};

}  // namespace dslaunch
