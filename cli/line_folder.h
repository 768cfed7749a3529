// A line that many ranks write is shown once.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// Holds each line back until every rank has written it, or for kWindow: ranks that write the same
// bytes to the same stream meanwhile share it. Lines that differ in anything, such as a rank's
// number, are never one. What goes out has each rank's lines in the order in which they came in,
// and each of them once. With one rank nothing is held back; else what is held is at most
// kMaxBytes, beyond which the oldest goes out early. Pure: time comes in. Not thread-safe.
class LineFolder {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  static constexpr std::chrono::milliseconds kWindow{200};
  static constexpr size_t kMaxBytes = 1 << 20;

  // Valid during the call of the sink only.
  struct Line {
    bool is_stderr = false;
    std::string_view tag;    // of the rank that wrote it first
    std::vector<int> ranks;  // that wrote it; ascending
    std::string_view text;
  };
  using Sink = std::function<void(const Line&)>;

  // How many ranks there are, at most.
  void SetRanks(size_t ranks) { num_ranks_ = ranks; }

  // A rank wrote a line at `now`, which never goes back.
  void Add(TimePoint now, int rank, bool is_stderr, std::string_view tag, std::string_view text,
           const Sink& sink);

  // When Flush has something to give; nullopt: nothing is held.
  std::optional<TimePoint> FlushDue() const;

  // Gives what is due at `now`.
  void Flush(TimePoint now, const Sink& sink);

  // Gives all.
  void Finish(const Sink& sink);

 private:
  using Texts = std::map<std::string, std::deque<uint64_t>, std::less<>>;
  struct Held {
    bool is_stderr = false;
    std::string tag;
    std::vector<int> ranks;  // in the order in which they came
    Texts::iterator text;    // with the numbers of all held lines that have it, ascending
    TimePoint since;
  };

  // The number of the line that `rank` is to be part of: the oldest with this text that comes after
  // all that it wrote before, or a new one.
  uint64_t NumberFor(TimePoint now, int rank, bool is_stderr, std::string_view tag,
                     std::string_view text);
  Held& At(uint64_t number) { return held_[number - first_]; }
  void EmitFirst(const Sink& sink);

  size_t num_ranks_ = 1;
  std::deque<Held> held_;  // oldest first, numbered from first_
  uint64_t first_ = 1;
  size_t held_bytes_ = 0;
  Texts texts_[2];                  // of stdout and stderr
  std::map<int, uint64_t> newest_;  // of each rank: the number of the last line that it is part of
};

// "[x15 ranks: 0-14] "; `ranks` as RankRanges has them. No tag of one rank looks like it: it has
// spaces, names of nodes have none.
std::string FoldedTag(const std::vector<int>& ranks);

}  // namespace dslaunch
