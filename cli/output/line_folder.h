// Merges equal lines of several ranks.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// Holds each line back until every rank has written it, or for kWindow; ranks that write the same
// bytes to the same stream meanwhile share it. Lines that differ at all, for example in a rank's
// number, are not merged. The output has each line of each rank once and in the rank's order; lines
// of different ranks may change places. With one rank nothing is held back. Otherwise at most
// kMaxBytes are held; beyond that the oldest line is output early. Pure: the caller passes the
// time. Not thread-safe.
class LineFolder {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  static constexpr std::chrono::milliseconds kWindow{200};
  static constexpr size_t kMaxBytes = 1 << 20;

  // A line for the sink; valid only during the call.
  struct Line {
    bool is_stderr = false;
    std::string_view tag;    // tag of the first rank that wrote it
    std::vector<int> ranks;  // ranks that wrote it, ascending
    std::string_view text;
  };
  using Sink = std::function<void(const Line&)>;

  // Sets the maximum number of ranks.
  void SetRanks(size_t ranks) { num_ranks_ = ranks; }

  // Adds a line that a rank wrote at `now`, which must never decrease.
  void Add(TimePoint now, int rank, bool is_stderr, std::string_view tag, std::string_view text,
           const Sink& sink);

  // Returns when Flush has lines to output; nullopt if nothing is held.
  std::optional<TimePoint> FlushDue() const;

  // Outputs the lines that are due at `now`.
  void Flush(TimePoint now, const Sink& sink);

  // Outputs all lines.
  void Finish(const Sink& sink);

 private:
  struct Held;
  using Texts = std::map<std::string, std::deque<Held*>, std::less<>>;
  struct Held {
    struct Member {
      int rank = 0;
      uint64_t place = 0;  // index in the rank's chain
    };
    std::list<Held>::iterator self;
    bool is_stderr = false;
    std::string tag;
    std::vector<Member> members;  // in order of arrival
    Texts::iterator text;         // entry of all held lines with this text, oldest first
    TimePoint since;
    uint64_t level = 0;  // greater than the level of every line that must precede it
    uint64_t seen = 0;   // number of the newest search that visited it
  };
  // The held lines of a rank, in its order. A shared line is in the chains of all its ranks;
  // together the chains define which lines must precede others.
  struct Chain {
    std::deque<Held*> held;
    uint64_t first = 0;  // index of the oldest line

    uint64_t level() const { return held.empty() ? 0 : held.back()->level; }
  };

  Held& HeldFor(TimePoint now, const Chain& chain, bool is_stderr, std::string_view tag,
                std::string_view text);
  bool CanFollow(const Chain& chain, Held& held);
  Held* Next(const Held::Member& member);
  void Raise(Held& held, uint64_t level);
  void Emit(Held& held, const Sink& sink);

  size_t num_ranks_ = 1;
  std::list<Held> held_;  // oldest first
  size_t held_bytes_ = 0;
  uint64_t searches_ = 0;
  Texts texts_[2];  // for stdout and stderr
  std::map<int, Chain> chains_;
};

// Returns "[x15 ranks: 0-14] ", with `ranks` formatted by RankRanges. Cannot be confused with the
// tag of one rank, because names of nodes contain no spaces.
std::string FoldedTag(const std::vector<int>& ranks);

}  // namespace dslaunch
