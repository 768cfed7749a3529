// Defines the lines of the status pipe (DSLAUNCH_STATUS_FD): one JSON object per line, written by
// any worker and read by the agent.
//   {"event":"ready"}
//   {"event":"step","step":120,"total_steps":1000,"loss":0.31,"samples_per_s":5120,"compute_s":0.12}
//   {"event":"eval","step":1000,"loss":0.35,"accuracy":0.8712}
//   {"event":"lost","rank":3}
//   {"event":"wait","exchange":"an all-reduce (12)","wait_s":5.2}
//   {"event":"copied","step":120}
//   {"event":"restored","step":120,"source":"memory","reached_step":127}
//   {"event":"save","step":120}
//   {"event":"saved","step":120}
// "ready" may have "loss_tolerated":true, which means that the job does not fail if a signal ends
// this rank. "lost" reports that another rank, whose loss is tolerated, does not answer; the other
// ranks continue without that rank, and it is killed.
// "wait" reports that the rank has waited that long for an exchange with other ranks. The next line
// ends the wait, even a "wait" with an empty exchange.
// "copied" reports that the rank has stored a copy of its state after that step in its node's
// memory. "restored", sent by one rank, reports that the job continues after that step, from such
// copies or, with the source "disk", from a checkpoint. "reached_step" is the last step that an
// earlier attempt completed; it is left out if the rank cannot determine it.
// "save" reports that the rank begins to save a checkpoint, and "saved" that the checkpoint is
// saved; training waits in between.
// Trainers of text may add "tokens_per_s" to "step", which is shown instead of samples_per_s.
// Of "ready" and "step", only the fields below are read; other fields are ignored, so programs may
// add their own. All numbers of "eval" are its results; the newest are the `result` of --json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dslaunch {

// The kinds of lines. A slow reader needs only the newest line of each kind.
enum class StatusKind { kProgress, kEvaluation, kCopy };

// Maximum bytes of a line; longer lines are ignored.
inline constexpr size_t kMaxStatusLineBytes = 4096;

// Names and values in their original order. Values that are not finite are NaN.
using EvaluationResults = std::vector<std::pair<std::string, double>>;

struct StatusLine {
  enum class Event { kReady, kStep, kEval, kLost, kWait, kCopied, kRestored, kSave, kSaved };
  Event event = Event::kReady;
  // True if the other ranks continue when a signal ends this rank; for kReady.
  bool loss_tolerated = false;
  // Number of completed optimizer steps; for kSave and kSaved, of the steps in the checkpoint.
  int64_t step = 0;
  int64_t total_steps = 0;  // number of steps of the run; 0 if unknown
  std::optional<double> loss = {};
  std::optional<double> samples_per_s = {};  // samples per second over all ranks
  std::optional<double> tokens_per_s = {};   // tokens per second over all ranks
  std::optional<double> compute_s = {};      // seconds of the rank's own work in the step
  EvaluationResults results = {};            // results of the evaluation; for kEval
  uint32_t lost_rank = 0;                    // rank that does not answer; for kLost
  // Exchange for which the rank waits, without quotes, backslashes and control characters; for
  // kWait.
  std::string exchange = {};
  double waits_s = 0;                        // seconds that the rank has waited; for kWait
  bool from_memory = false;                  // true from memory, false from a disk; for kRestored
  std::optional<int64_t> reached_step = {};  // last step of an earlier attempt; for kRestored

  StatusKind kind() const {
    return event == Event::kEval     ? StatusKind::kEvaluation
           : event == Event::kCopied ? StatusKind::kCopy
                                     : StatusKind::kProgress;
  }

  // Returns the line with its newline. A loss that is NaN or infinite is written as null.
  std::string Format() const;

  // Parses a line. Returns nullopt if the line is malformed, has an unknown event or source, is too
  // long, or has a negative step, rank or waiting time.
  static std::optional<StatusLine> Parse(std::string_view line);
};

}  // namespace dslaunch
