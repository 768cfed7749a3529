#include "rendezvous/culprit.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/text/sanitize.h"
#include "proto/wire/rank_stacks.h"
#include "rendezvous/flight_judgement.h"

namespace dslaunch {
namespace {

using Kind = WaitPlace::Kind;
using Rule = Culprit::Rule;

constexpr char kNotThere[] = "not where the others are";
constexpr size_t kShownFrames = 4;
constexpr size_t kShownGroups = 4;  // most groups of equal stacks to show for each set of ranks

// --- Sleeping programs without Python ---

// Returns whether the thread sleeps: its system call ends after some time, or when a child or
// another process on this machine acts. A service that waits for requests does not count as asleep.
bool IsAsleep(const pb::ThreadStack& thread) {
  constexpr std::string_view kSleeps[] = {"nanosleep", "clock_nanosleep", "wait4", "waitid",
                                          "futex",     "restart_syscall", "pause", "flock",
                                          "read",      "rt_sigsuspend",   "write"};
  return thread.state() == "S" && std::ranges::count(kSleeps, thread.call()) > 0 &&
         thread.target().find("socket") == std::string::npos;
}

bool IsWhollyAsleep(const RankEvidence& rank) {
  if (!rank.stacks || HasPython(*rank.stacks) || rank.stacks->processes().empty()) return false;
  return std::ranges::all_of(rank.stacks->processes(), [](const pb::ProcessStacks& process) {
    return !process.threads().empty() && std::ranges::all_of(process.threads(), &IsAsleep);
  });
}

// --- Texts for the user ---

std::string RankText(const RankEvidence& rank) {
  return "rank " + std::to_string(rank.rank) + " (" + rank.node + ", local rank " +
         std::to_string(rank.local_rank) + ")";
}

std::vector<uint32_t> NumbersOf(std::span<const RankEvidence* const> ranks) {
  std::vector<uint32_t> numbers;
  for (const RankEvidence* rank : ranks) numbers.push_back(rank->rank);
  return numbers;
}

bool HasFrame(const pb::ThreadStack& thread, std::string_view function, std::string_view file_end) {
  return std::ranges::any_of(thread.frames(), [&](const pb::StackFrame& frame) {
    const std::string_view name = frame.function();
    return name.substr(name.rfind('.') + 1) == function &&
           std::string_view(frame.file()).ends_with(file_end);
  });
}

// Returns the thread for which the rank's main thread waits: a thread of a DataLoader's worker, or
// the thread that reads data in `dslaunch train`. Returns nullptr if the main thread waits for no
// such thread.
const pb::ThreadStack* FindBusyLoader(const pb::RankStacks& stacks, const pb::ThreadStack& main) {
  if (WaitsForBatch(main)) return FindBatchReader(stacks, main);
  if (!HasFrame(main, "_try_get_data", "dataloader.py") && !HasFrame(main, "get", "queues.py"))
    return nullptr;
  for (const pb::ProcessStacks& process : stacks.processes()) {
    if (process.threads().empty() || &process.threads(0) == &main) continue;
    const pb::ThreadStack& thread = process.threads(0);
    const bool is_worker = HasFrame(thread, "_worker_loop", "worker.py");
    if (is_worker && !HasFrame(thread, "get", "queues.py")) return &thread;
  }
  return nullptr;
}

// Returns a line that describes where a rank is, by its exchange or by the thread that shows its
// activity.
std::string PlaceText(const pb::RankStacks& stacks) {
  if (!stacks.exchange().empty()) return "in " + SanitizeForTerminal(stacks.exchange());
  const pb::ThreadStack* shown = ShownThread(stacks);
  if (shown == nullptr) {
    return stacks.trouble().empty() ? "nothing is known of its threads"
                                    : SanitizeForTerminal(stacks.trouble());
  }
  std::string prefix;
  const bool is_native = !HasPython(stacks);
  if (is_native || shown->frames_size() == 0) {
    const pb::ProcessStacks& process = ProgramOf(stacks);
    if (!process.threads().empty()) {
      shown = &process.threads(0);
      prefix = SanitizeForTerminal(process.command()) + ": ";
    }
  }
  if (const pb::ThreadStack* loader = FindBusyLoader(stacks, *shown)) {
    prefix = "its data loader's worker: ";
    shown = loader;
  }
  const std::string frames = FramesText(WithoutLibraries(*shown, is_native), kShownFrames);
  const std::string kernel = KernelText(*shown);
  return prefix + frames + (frames.empty() || kernel.empty() ? "" : "  ") + kernel;
}

void AddGroups(const std::vector<const RankEvidence*>& ranks, std::vector<std::string>& lines) {
  std::vector<pb::RankStacks> stacks;
  for (const RankEvidence* rank : ranks) {
    if (!rank->stacks) continue;
    stacks.push_back(*rank->stacks);
    stacks.back().set_rank(rank->rank);
  }
  const std::vector<FoldedStacks> groups = FoldStacks(stacks);
  for (size_t i = 0; i < groups.size(); ++i) {
    if (i == kShownGroups) {
      lines.push_back("    and " + std::to_string(groups.size() - i) + " other places");
      break;
    }
    const std::string who = groups.size() == 1 ? "" : RanksText(groups[i].ranks) + ": ";
    lines.push_back("    " + who + PlaceText(*groups[i].stacks));
  }
}

// --- The rules that name a culprit ---

using Pointers = std::vector<const RankEvidence*>;

struct Sides {
  Pointers known;    // ranks that are in an exchange
  Pointers maybe;    // ranks that may be in an exchange
  Pointers outside;  // ranks that are in no exchange
  Pointers stopped;
  Pointers ended;
  Pointers silent;  // ranks whose stacks are not known
  std::map<uint32_t, WaitPlace> places;
};

bool IsStopped(const RankEvidence& rank) {
  if (rank.stopped) return true;
  if (!rank.stacks) return false;
  for (const pb::ProcessStacks& process : rank.stacks->processes()) {
    if (process.threads().empty()) continue;
    const std::string& state = process.threads(0).state();
    if (state == "T" || state == "t" || state == "D") return true;
  }
  return false;
}

Sides Divide(const std::vector<RankEvidence>& ranks) {
  Sides sides;
  for (const RankEvidence& rank : ranks) {
    if (rank.ended) {
      sides.ended.push_back(&rank);
    } else if (IsStopped(rank)) {
      sides.stopped.push_back(&rank);
    } else if (!rank.stacks || rank.stacks->processes().empty()) {
      sides.silent.push_back(&rank);
    } else {
      const WaitPlace place = FindWaitPlace(*rank.stacks);
      (place.kind == Kind::kKnown   ? sides.known
       : place.kind == Kind::kMaybe ? sides.maybe
                                    : sides.outside)
          .push_back(&rank);
      sides.places.emplace(rank.rank, place);
    }
  }
  return sides;
}

// Appends a line such as "ranks 0-2 wait for it in all_reduce:" to `lines`, and the places where
// these ranks are.
void AddWaiting(const Sides& sides, const Pointers& waiting, std::string_view for_whom,
                std::vector<std::string>& lines) {
  if (waiting.empty()) return;
  std::string call = sides.places.at(waiting.front()->rank).call;
  for (const RankEvidence* rank : waiting) {
    if (sides.places.at(rank->rank).call != call) call.clear();
  }
  lines.push_back("  " + RanksText(NumbersOf(waiting)) +
                  (waiting.size() == 1 ? " waits" : " wait") + std::string(for_whom) +
                  (call.empty() ? "" : " in " + call) + ":");
  AddGroups(waiting, lines);
}

// Appends hints that explain how to continue the stopped processes of the ranks.
void AddHints(const Pointers& stopped, std::vector<std::string>& lines) {
  size_t hints = 0;
  for (const RankEvidence* rank : stopped) {
    if (rank->stacks == nullptr) continue;
    for (const pb::ProcessStacks& process : rank->stacks->processes()) {
      if (process.threads().empty() || process.threads(0).state() != "T") continue;
      if (++hints > kShownGroups) return;
      lines.push_back("    kill -CONT " + std::to_string(process.pid()) + " continues it on " +
                      rank->node);
    }
  }
}

// Returns a culprit that names `blamed` as the ranks for which `waiting` waits.
Culprit Blame(Rule rule, bool sure, const Pointers& blamed, const std::string& what,
              const Sides& sides, const Pointers& waiting) {
  Culprit culprit;
  culprit.rule = rule;
  culprit.sure = sure;
  culprit.ranks = NumbersOf(blamed);
  std::ranges::sort(culprit.ranks);
  const bool one = blamed.size() == 1;
  const std::string who = one ? RankText(*blamed.front()) : RanksText(culprit.ranks);
  culprit.summary = (sure ? "" : "probably ") + who + (one ? " is " : " are ") + what;
  culprit.lines.push_back("  " + culprit.summary + ":");
  AddGroups(blamed, culprit.lines);
  // No stacks follow this line, so its colon is removed.
  if (culprit.lines.size() == 1) culprit.lines.back().pop_back();
  if (rule == Rule::kStopped) AddHints(blamed, culprit.lines);
  AddWaiting(sides, waiting, one ? " for it" : " for them", culprit.lines);
  return culprit;
}

Pointers Joined(Pointers a, const Pointers& b) {
  a.insert(a.end(), b.begin(), b.end());
  std::ranges::sort(a, {}, &RankEvidence::rank);
  return a;
}

// Groups the ranks, which all wait, by their exchange and program line. Returns a culprit that
// blames all ranks outside of the largest group, or all ranks if the groups are equally large.
// Returns nullopt if there is only one group.
std::optional<Culprit> JudgePlaces(const Sides& sides) {
  std::map<std::pair<std::string, std::string>, Pointers> groups;
  for (const RankEvidence* rank : sides.known) {
    const WaitPlace& place = sides.places.at(rank->rank);
    groups[{place.call, place.site}].push_back(rank);
  }
  if (groups.size() < 2) return std::nullopt;
  std::vector<Pointers> sorted;
  for (auto& [place, ranks] : groups) sorted.push_back(std::move(ranks));
  std::ranges::stable_sort(sorted, {}, [](const Pointers& ranks) { return ranks.size(); });
  Culprit culprit;
  culprit.rule = Rule::kOtherPlace;
  const bool has_majority = sorted.front().size() < sorted.back().size();
  Pointers blamed;
  for (size_t i = 0; i < sorted.size() - (has_majority ? 1 : 0); ++i)
    blamed = Joined(std::move(blamed), sorted[i]);
  culprit.ranks = NumbersOf(blamed);
  culprit.summary = has_majority ? "probably " + RanksText(culprit.ranks) +
                                       " called another exchange than the others"
                                 : "ranks wait in different exchanges, so their order differs";
  culprit.lines.push_back("  " + culprit.summary + ":");
  for (size_t i = 0; i < sorted.size() && i < kShownGroups; ++i)
    AddWaiting(sides, sorted[i], "", culprit.lines);
  return culprit;
}

// Returns the predicate for the ranks of a verdict, such as "has not called all_reduce (...)".
std::string FlightText(const FlightVerdict& verdict) {
  const bool one = verdict.ranks.size() == 1;
  if (verdict.kind == FlightVerdict::Kind::kNotEntered)
    return (one ? "has not called " : "have not called ") + verdict.what;
  if (verdict.kind == FlightVerdict::Kind::kNotStarted)
    return (one ? "has not begun " : "have not begun ") + verdict.what + " on the device";
  return "wait for each other, so the order of their exchanges differs";
}

// Returns the culprit according to the records of PyTorch's Flight Recorder. Returns nullopt if
// there are no records or they show no difference.
std::optional<Culprit> JudgeRecords(const std::vector<RankEvidence>& ranks) {
  std::vector<const pb::FlightRecord*> records;
  for (const RankEvidence& rank : ranks) {
    if (rank.flight != nullptr) records.push_back(rank.flight);
  }
  if (records.empty()) return std::nullopt;
  const auto verdict = JudgeFlight(records, static_cast<uint32_t>(ranks.size()));
  if (!verdict) return std::nullopt;
  Culprit culprit;
  culprit.rule = Rule::kFlight;
  culprit.ranks = verdict->ranks;
  Pointers blamed;
  for (const RankEvidence& rank : ranks) {
    if (std::ranges::binary_search(verdict->ranks, rank.rank)) blamed.push_back(&rank);
  }
  // A blamed rank may itself wait for others by means other than torch.distributed. It is then not
  // the cause, so the verdict is not sure.
  culprit.sure =
      verdict->sure && std::ranges::none_of(blamed, [](const RankEvidence* rank) {
        return rank->stacks == nullptr || FindWaitPlace(*rank->stacks).kind == Kind::kKnown;
      });
  const std::string who = blamed.size() == 1 ? RankText(*blamed.front()) : RanksText(culprit.ranks);
  if (verdict->kind == FlightVerdict::Kind::kOtherOperation) {
    culprit.summary = verdict->what + (blamed.empty() ? "" : ", probably because of " + who);
  } else {
    const bool is_circle = verdict->kind == FlightVerdict::Kind::kOtherOrder;
    culprit.summary =
        (culprit.sure || is_circle ? "" : "probably ") + who + " " + FlightText(*verdict);
  }
  culprit.lines.push_back("  " + culprit.summary + ":");
  if (verdict->kind == FlightVerdict::Kind::kNotEntered) AddGroups(blamed, culprit.lines);
  for (const std::string& line : verdict->lines) culprit.lines.push_back("    " + line);
  return culprit;
}

// Returns the culprit according to the number of operations that NCCL's RAS has counted. Returns
// nullopt if the report names no rank, or all ranks.
std::optional<Culprit> JudgeRas(const std::vector<RankEvidence>& ranks, const pb::RasReport& ras) {
  const bool is_silent = ras.missing_size() > 0;
  const auto& named = is_silent ? ras.missing() : ras.behind();
  Pointers blamed;
  for (const RankEvidence& rank : ranks) {
    if (std::ranges::count(named, rank.rank) > 0) blamed.push_back(&rank);
  }
  if (blamed.empty() || blamed.size() == ranks.size()) return std::nullopt;
  Culprit culprit;
  culprit.rule = Rule::kRas;
  culprit.ranks = NumbersOf(blamed);
  const bool one = blamed.size() == 1;
  culprit.summary = "probably " + (one ? RankText(*blamed.front()) : RanksText(culprit.ranks));
  if (is_silent) {
    culprit.summary += std::string(one ? " does" : " do") + " not answer NCCL's RAS";
  } else {
    culprit.summary += (one ? " has launched " : " have launched ") +
                       std::to_string(ras.behind_count()) + " operations " +
                       SanitizeForTerminal(ras.operation()) + " of NCCL, the others " +
                       std::to_string(ras.most_count());
  }
  culprit.lines.push_back("  " + culprit.summary + ":");
  AddGroups(blamed, culprit.lines);
  // No stacks follow this line, so its colon is removed.
  if (culprit.lines.size() == 1) culprit.lines.back().pop_back();
  return culprit;
}

Culprit JudgeUnknown(const Sides& sides, const Pointers& waiting) {
  Culprit culprit;
  // The ranks of a healthy job may wait at one place too, so these stacks prove nothing. NCCL's RAS
  // counts the exchanges of all ranks and may still name a rank.
  if (std::ranges::any_of(waiting, &RankEvidence::has_gpu) &&
      std::ranges::none_of(waiting, &RankEvidence::makes_no_exchange))
    return culprit;
  Pointers unread;
  for (const RankEvidence* rank : waiting) {
    if (rank->unread_bytes > 0) unread.push_back(rank);
  }
  if (!unread.empty() && unread.size() < waiting.size()) {
    Pointers others;
    std::ranges::copy_if(waiting, std::back_inserter(others),
                         [](const RankEvidence* rank) { return rank->unread_bytes == 0; });
    return Blame(Rule::kUnread, false, unread, "not reading what the others have sent", sides,
                 others);
  }
  culprit.rule = Rule::kUnknown;
  culprit.summary =
      "all ranks wait at one place, so the network or a device may be the cause: not known";
  culprit.lines.push_back("  " + culprit.summary);
  AddWaiting(sides, waiting, "", culprit.lines);
  return culprit;
}

Culprit JudgeAsleep(const std::vector<RankEvidence>& ranks) {
  Culprit culprit;
  Pointers running;
  for (const RankEvidence& rank : ranks) {
    if (rank.ended) continue;
    if (!IsWhollyAsleep(rank)) return culprit;
    running.push_back(&rank);
  }
  culprit.rule = Rule::kAsleep;
  culprit.summary = RanksText(NumbersOf(running)) + (running.size() == 1 ? " is" : " are") +
                    " asleep, and nothing shows which of them the others wait for";
  culprit.lines.push_back("  " + culprit.summary + ":");
  AddGroups(running, culprit.lines);
  return culprit;
}

// Returns whether a rank without a GPU computes on the CPU, so that it may not wait for other
// ranks.
bool Computes(const RankEvidence& rank) {
  if (rank.has_gpu || rank.stacks == nullptr || rank.stopped || rank.ended) return false;
  const bool runs =
      rank.uses_cpu ||
      std::ranges::any_of(rank.stacks->processes(), [](const pb::ProcessStacks& process) {
        return !process.threads().empty() && process.threads(0).state() == "R";
      });
  return runs && FindWaitPlace(*rank.stacks).kind != Kind::kKnown;
}

Culprit JudgeStacks(const std::vector<RankEvidence>& ranks) {
  const Sides sides = Divide(ranks);
  const Pointers waiting = Joined(sides.known, sides.maybe);
  const size_t others = sides.outside.size() + sides.silent.size();
  if (!sides.stopped.empty()) {
    return Blame(Rule::kStopped, true, sides.stopped,
                 "stopped by a signal, frozen, or in an uninterruptible wait", sides, waiting);
  }
  if (sides.known.empty() &&
      (sides.maybe.empty() || (sides.outside.empty() && sides.ended.empty())))
    return JudgeAsleep(ranks);
  if (!sides.ended.empty() && sides.outside.empty()) {
    const bool sure = !sides.known.empty() && sides.silent.empty();
    Culprit culprit = Blame(Rule::kEnded, sure, sides.ended, "gone", sides, waiting);
    culprit.summary = (sure ? "" : "probably ") + RanksText(culprit.ranks) +
                      " exited with 0 while the others wait";
    culprit.lines.front() = "  " + culprit.summary;
    return culprit;
  }
  if (!sides.outside.empty()) {
    const bool sure =
        !sides.known.empty() && sides.ended.empty() && sides.silent.empty() &&
        2 * others <= ranks.size() &&
        std::ranges::none_of(sides.outside, [](auto* rank) { return Computes(*rank); });
    return Blame(Rule::kOutside, sure, sides.outside, kNotThere, sides, waiting);
  }
  // The ranks in `maybe` wait for a lock, or in an exchange without a frame of its own. The other
  // ranks are in a known exchange, so the ranks in `maybe` are blamed, but not for sure.
  if (!sides.maybe.empty() && !sides.known.empty())
    return Blame(Rule::kOutside, false, sides.maybe, kNotThere, sides, sides.known);
  if (auto places = JudgePlaces(sides)) return *places;
  return JudgeUnknown(sides, waiting);
}

}  // namespace

Culprit Judge(const std::vector<RankEvidence>& ranks, const pb::RasReport* ras) {
  const bool may_go_on = std::ranges::any_of(
      ranks, [](const RankEvidence& rank) { return Computes(rank) && !rank.computes_long; });
  if (may_go_on) return {};
  Culprit culprit = JudgeStacks(ranks);
  if (culprit.sure) return culprit;
  if (auto records = JudgeRecords(ranks)) return *std::move(records);
  if (ras == nullptr || !culprit.ranks.empty()) return culprit;
  return JudgeRas(ranks, *ras).value_or(std::move(culprit));
}

Culprit JudgeSteps(const std::vector<RankEvidence>& ranks, const std::vector<uint32_t>& behind) {
  Culprit culprit = JudgeStacks(ranks);
  if (!culprit.sure) culprit = JudgeRecords(ranks).value_or(std::move(culprit));
  if (!culprit.ranks.empty() || culprit.rule == Rule::kFlight) return culprit;
  culprit = {};
  culprit.rule = Rule::kBehind;
  culprit.ranks = behind;
  Pointers shown;
  for (const RankEvidence& rank : ranks) {
    if (std::ranges::binary_search(behind, rank.rank)) shown.push_back(&rank);
  }
  AddGroups(shown, culprit.lines);
  return culprit;
}

}  // namespace dslaunch
