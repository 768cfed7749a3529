// Names the ranks for which a stalled job waits, using the stacks of all ranks. All functions are
// pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "proto/stacks.pb.h"
#include "rendezvous/wait_place.h"

namespace dslaunch {

// The evidence about a rank while the job is stalled.
struct RankEvidence {
  uint32_t rank = 0;
  std::string node;  // name of the rank's node
  uint32_t local_rank = 0;
  // Borrowed; nullptr if the rank did not answer or has ended.
  const pb::RankStacks* stacks = nullptr;
  std::chrono::seconds still{0};  // time for which the rank has shown no sign of life
  bool ended = false;             // whether the rank exited with 0
  bool stopped = false;           // whether a process of the rank is stopped by a signal
  bool has_gpu = false;
  bool uses_cpu = false;  // whether CPU time is the rank's only sign of life
  // Whether `uses_cpu` has lasted so long that CPU time no longer counts as a sign of life.
  bool computes_long = false;
  bool makes_no_exchange = false;  // whether the rank is known to make no exchange with other ranks
  // Bytes received on connections from other ranks that the rank has not read.
  uint64_t unread_bytes = 0;
  const pb::FlightRecord* flight = nullptr;  // borrowed; nullptr if no records were requested
};

struct Culprit {
  // The rule that named the culprit. The rules are tried in this order.
  enum class Rule {
    kNoneWaits,   // no rank waits for another, so the job does not hang
    kStopped,     // a rank is stopped by a signal, or in an uninterruptible wait
    kEnded,       // a rank exited with 0 while the others wait
    kOutside,     // a rank is in no exchange while the others are in one
    kOtherPlace,  // a rank is in a different exchange than the others
    kUnread,      // a rank does not read the bytes that the others have sent
    kAsleep,      // every process of every rank sleeps; applies only to programs without Python
    kUnknown,     // all ranks wait at one place, so no rank can be named
    kBehind,      // a rank completed fewer steps than the others
    kRas,  // NCCL's RAS: a rank launched fewer operations than the others, or does not answer
    // Flight Recorder: a rank has not called the exchange of the others, or called a different one.
    kFlight,
  };
  Rule rule = Rule::kNoneWaits;
  bool sure = false;            // whether the evidence rules out every other rank
  std::vector<uint32_t> ranks;  // ranks to blame, ascending; empty if no rank can be named
  std::string summary;  // clause for the user, such as "rank 3 (node1) is not where the others are"
  std::vector<std::string> lines;  // evidence for the user, sanitized and indented
};

// Returns the culprit according to the first rule that applies. If that rule is not sure, the
// records of Flight Recorder are used instead, if they show a difference. The result is never sure
// if another rank may be the cause.
//
// Returns kNoneWaits in two cases:
// - A rank has a GPU open, no rank differs from the others, and no rank is known to make no
//   exchange. The ranks of a healthy job wait at one place too.
// - A rank without a GPU runs, waits for a CPU or uses_cpu, so its work may be the only reason for
//   the delay. Ranks in an exchange (MPI waits by spinning) and ranks with computes_long do not
//   count.
//
// `ras` is the report of NCCL's RAS about the job, used if no other evidence names a rank; nullptr
// if there is no report.
Culprit Judge(const std::vector<RankEvidence>& ranks, const pb::RasReport* ras = nullptr);

// Returns the culprit of a job whose ranks complete no more steps. Uses the same evidence as
// Judge(), but not `ras`, and may also blame a rank that still shows signs of life. If this
// evidence names no rank, blames `behind` (kBehind), the ranks that have completed the fewest
// steps, ascending.
Culprit JudgeSteps(const std::vector<RankEvidence>& ranks, const std::vector<uint32_t>& behind);

}  // namespace dslaunch
