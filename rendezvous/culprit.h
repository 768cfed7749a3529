// Names the ranks for which a job that stands still waits, from the stacks of all ranks. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "proto/stacks.pb.h"
#include "rendezvous/wait_place.h"

namespace dslaunch {

// The evidence about one rank while the job is stalled.
struct RankEvidence {
  uint32_t rank = 0;
  std::string node;  // name of its node
  uint32_t local_rank = 0;
  const pb::RankStacks* stacks = nullptr;  // borrowed; nullptr: no answer, or it has ended
  std::chrono::seconds still{0};           // how long the rank has shown no sign of life
  bool ended = false;                      // the rank exited with 0
  bool stopped = false;                    // a process of the rank is stopped by a signal
  bool has_gpu = false;
  bool uses_cpu = false;           // CPU time is its only sign of life
  bool computes_long = false;      // ... for so long that it counts as none
  bool makes_no_exchange = false;  // pb::Stillness.makes_no_exchange
  uint64_t unread_bytes = 0;       // received on connections from other ranks, and not read by it
  const pb::FlightRecord* flight = nullptr;  // borrowed; nullptr: not asked for
};

struct Culprit {
  // The rule that decided. The rules are tried in this order.
  enum class Rule {
    kNoneWaits,   // no rank waits for another: not a hang
    kStopped,     // stopped by a signal, or in an uninterruptible wait
    kEnded,       // exited with 0 while the others wait
    kOutside,     // not in an exchange while the others are
    kOtherPlace,  // in another exchange than the others
    kUnread,      // does not read what the others have sent
    kAsleep,      // programs without Python: every process of every rank sleeps
    kUnknown,     // all wait at one place
    kBehind,      // completed fewer steps than the others
    kRas,         // has launched fewer operations than the others, or does not answer (NCCL's RAS)
    kFlight,      // has not called the exchange of the others, or another one (Flight Recorder)
  };
  Rule rule = Rule::kNoneWaits;
  bool sure = false;
  std::vector<uint32_t> ranks;     // ascending; empty: not known
  std::string summary;             // a clause such as "rank 3 (node1) is not where the others are"
  std::vector<std::string> lines;  // evidence for the user, sanitized, with its indentation
};

// Returns the first rule that applies; what Flight Recorder holds replaces a rule that is not sure.
// Never sure if another rank may be the cause. Returns
// kNoneWaits if a rank has a GPU open, no rank differs from the others, and none is known to make
// no exchange, because such ranks wait at one place in a healthy job too; and if a rank without a
// GPU runs, waits for a CPU or uses_cpu, which may be all that delays it, unless it is in an
// exchange (MPI waits so) or computes_long. `ras`: what NCCL's RAS reports of the job, used if
// nothing else names a rank; nullptr: unknown.
Culprit Judge(const std::vector<RankEvidence>& ranks, const pb::RasReport* ras = nullptr);

// Judges a job in which the ranks `behind` have completed the fewest steps: they are the
// result if Judge names no rank. A rank that runs may be the cause.
Culprit JudgeSteps(const std::vector<RankEvidence>& ranks, const std::vector<uint32_t>& behind);

}  // namespace dslaunch
