// Merges equal lines that several ranks write.
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

// Holds each line back until every rank has written it, or for kWindow. Ranks that write the same
// bytes to the same stream in this time share the line. Lines that differ at all, for example in a
// rank's number, are not merged.
//
// The output contains each line of each rank once and in the rank's order; lines of different ranks
// may be reordered. With a single rank no line is held back. Otherwise at most kMaxBytes are held;
// if the limit is exceeded, the oldest line is output early. The caller passes the time. Not
// thread-safe.
class LineFolder {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  static constexpr std::chrono::milliseconds kWindow{200};
  static constexpr size_t kMaxBytes = 1 << 20;

  // A line for the sink; valid only during the call.
  struct Line {
    bool is_stderr = false;
    std::string_view tag;    // tag of the first rank that wrote the line
    std::vector<int> ranks;  // ranks that wrote the line, ascending
    std::string_view text;
  };
  using Sink = std::function<void(const Line&)>;

  // Sets the maximum number of ranks that write lines.
  void SetRanks(size_t ranks) { num_ranks_ = ranks; }

  // Adds a line that a rank wrote at `now`, which must never decrease. Passes the lines that need
  // not be held any longer to `sink`.
  void Add(TimePoint now, int rank, bool is_stderr, std::string_view tag, std::string_view text,
           const Sink& sink);

  // Returns the time at which Flush will have lines to output; nullopt if no lines are held.
  std::optional<TimePoint> FlushDue() const;

  // Outputs the lines that are due at `now`.
  void Flush(TimePoint now, const Sink& sink);

  // Outputs all held lines.
  void Finish(const Sink& sink);

 private:
  struct Held;
  using Texts = std::map<std::string, std::deque<Held*>, std::less<>>;
  struct Held {
    struct Member {
      int rank = 0;
      uint64_t place = 0;  // index of the line in the chain of the rank
    };
    std::list<Held>::iterator self;
    bool is_stderr = false;
    std::string tag;
    std::vector<Member> members;  // ranks that wrote the line, in order of arrival
    Texts::iterator text;         // entry of all held lines with the same text, oldest first
    TimePoint since;
    uint64_t level = 0;  // greater than the level of every line that must precede this line
    uint64_t seen = 0;   // number of the newest search that visited this line
  };
  // The held lines of a rank, in the order in which the rank wrote them. A shared line is in the
  // chains of all its ranks, so the chains together define which lines must precede others.
  struct Chain {
    std::deque<Held*> held;
    uint64_t first = 0;  // index of the oldest held line in the chain

    uint64_t level() const { return held.empty() ? 0 : held.back()->level; }
  };

  Held& HeldFor(TimePoint now, const Chain& chain, bool is_stderr, std::string_view tag,
                std::string_view text);
  bool CanFollow(const Chain& chain, Held& held);
  Held* Next(const Held::Member& member);
  void Raise(Held& held, uint64_t level);
  void Emit(Held& held, const Sink& sink);

  size_t num_ranks_ = 1;
  std::list<Held> held_;  // held lines, oldest first
  size_t held_bytes_ = 0;
  uint64_t searches_ = 0;
  Texts texts_[2];  // held lines by text, for stdout and stderr
  std::map<int, Chain> chains_;
};

// Returns a tag such as "[x15 ranks: 0-14] ", with `ranks` formatted by RankRanges. Cannot be
// confused with the tag of a single rank, because names of nodes contain no spaces.
std::string FoldedTag(const std::vector<int>& ranks);

}  // namespace dslaunch
