// The status pipe (DSLAUNCH_STATUS_FD): one JSON object a line, written by any worker, read by the
// agent.
//   {"event":"ready"}
//   {"event":"step","step":120,"total_steps":1000,"loss":0.31,"samples_per_s":5120,"compute_s":0.12}
//   {"event":"eval","step":1000,"loss":0.35,"accuracy":0.8712}
//   {"event":"lost","rank":3}
// The first may have "loss_tolerated":true: that a signal ends this rank is no failure of the job.
// The last one reports that another rank, which had said so, does not answer. The other ranks go on
// without it, and it is killed.
// Text may have "tokens_per_s" too: it is shown in place of samples_per_s.
// Of the first two only the fields below are read; others are ignored, so programs may add their
// own. All numbers of an evaluation are its results; the newest is the `result` of --json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dslaunch {

inline constexpr size_t kMaxStatusLineBytes = 4096;  // longer lines are ignored whole

// Names and numbers in the order in which they were given; nan: not finite.
using EvaluationResults = std::vector<std::pair<std::string, double>>;

struct StatusLine {
  enum class Event { kReady, kStep, kEval, kLost };
  Event event = Event::kReady;
  // kReady only: the other ranks go on where a signal ends this one; the rank says it of itself.
  bool loss_tolerated = false;
  int64_t step = 0;         // optimizer steps done
  int64_t total_steps = 0;  // 0: unknown
  std::optional<double> loss;
  std::optional<double> samples_per_s;      // over all ranks
  std::optional<double> tokens_per_s = {};  // the same
  std::optional<double> compute_s = {};     // of this rank's own work in the step, waiting left out
  EvaluationResults results = {};           // kEval only
  uint32_t lost_rank = 0;                   // kLost only

  // One line with its newline. A loss that is not finite is written as null.
  std::string Format() const;

  // nullopt for anything that is not a status line: malformed, unknown event, too long, negative
  // step or rank.
  static std::optional<StatusLine> Parse(std::string_view line);
};

}  // namespace dslaunch
