// Names the ranks for which a job that stands still waits, from the stacks of all ranks. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "proto/stacks.pb.h"

namespace dslaunch {

// Where a rank waits for others, as far as its stacks show it.
struct WaitPlace {
  enum class Kind {
    kNone,   // it waits for no rank: in the program's own code, in a read of a file, asleep
    kMaybe,  // in a native call that may be an exchange
    kKnown,  // in an exchange between ranks
  };
  Kind kind = Kind::kNone;
  std::string call;  // the exchange: "all_reduce"; empty: unknown
  std::string site;  // the program's line that began it, "train (train.py:92)"; empty: unknown
};

// Finds the exchange in which a rank waits: a function of torch.distributed, DeepSpeed, Horovod or
// torch.cuda, an exchange that the rank has reported, or, in a program without Python, a system
// call that reads from a socket.
WaitPlace FindWaitPlace(const pb::RankStacks& stacks);

// The evidence about one rank while the job is stalled.
struct RankEvidence {
  uint32_t rank = 0;
  std::string node;  // name of its node
  uint32_t local_rank = 0;
  const pb::RankStacks* stacks = nullptr;  // borrowed; nullptr: no answer, or it has ended
  std::chrono::seconds still{0};           // how long it has shown no sign of life
  bool ended = false;                      // it exited with 0
  bool stopped = false;                    // one of its processes is stopped by a signal
  bool has_gpu = false;
  uint64_t unread_bytes = 0;  // received on connections from other ranks, and not read by it
};

struct Culprit {
  // The rule that applied, in the order in which they are tried.
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
  };
  Rule rule = Rule::kNoneWaits;
  bool sure = false;
  std::vector<uint32_t> ranks;     // ascending; empty: not known
  std::string summary;             // a clause such as "rank 3 (node1) is not where the others are"
  std::vector<std::string> lines;  // evidence for the user, sanitized, with its indentation
};

// Returns the first rule that applies. Never sure if another rank may be the cause. Returns
// kNoneWaits if a rank has a GPU open and no rank differs from the others, because such ranks
// wait at one place in a healthy job too; and if a rank without a GPU runs or waits for a CPU,
// which may be all that delays it.
Culprit Judge(const std::vector<RankEvidence>& ranks);

// Judges a job in which the ranks `behind` have completed the fewest steps: they are the
// result if Judge names no rank. A rank that runs may be the cause.
Culprit JudgeSteps(const std::vector<RankEvidence>& ranks, const std::vector<uint32_t>& behind);

}  // namespace dslaunch
