// A line that many ranks write is shown once.
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

// Holds each line back until every rank has written it, or for kWindow: ranks that write the same
// bytes to the same stream meanwhile share it. Lines that differ in anything, such as a rank's
// number, are never one. What goes out has each rank's lines in the order in which they came in,
// and each of them once; lines of different ranks may change places. With one rank nothing is held
// back; else what is held is at most kMaxBytes, beyond which the oldest goes out early. Pure: time
// comes in. Not thread-safe.
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
  struct Held;
  using Texts = std::map<std::string, std::deque<Held*>, std::less<>>;
  struct Held {
    struct Member {
      int rank = 0;
      uint64_t place = 0;  // in the rank's chain
    };
    std::list<Held>::iterator self;
    bool is_stderr = false;
    std::string tag;
    std::vector<Member> members;  // in the order in which they came
    Texts::iterator text;         // with all held lines that have it, oldest first
    TimePoint since;
    uint64_t level = 0;  // greater than that of every line that must go out before it
    uint64_t seen = 0;   // by the newest search
  };
  // A rank's lines, in its order. A line that several ranks share is in all their chains; together
  // they say what must go out before what.
  struct Chain {
    std::deque<Held*> held;
    uint64_t first = 0;  // place of the oldest

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
  Texts texts_[2];  // of stdout and stderr
  std::map<int, Chain> chains_;
};

// "[x15 ranks: 0-14] "; `ranks` as RankRanges has them. No tag of one rank looks like it: it has
// spaces, names of nodes have none.
std::string FoldedTag(const std::vector<int>& ranks);

}  // namespace dslaunch
