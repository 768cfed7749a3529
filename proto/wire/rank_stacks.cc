#include "proto/wire/rank_stacks.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string_view>
#include <utility>

#include "base/text/sanitize.h"

namespace dslaunch {
namespace {

// Cuts the end of a text that is too long, and keeps whole UTF-8 characters.
template <class Text>
void CutText(Text* text) {
  if (text->size() <= kMaxStackTextBytes) return;
  size_t end = kMaxStackTextBytes;
  while (end > 0 && (static_cast<unsigned char>((*text)[end]) & 0xc0) == 0x80) --end;
  text->resize(end);
}

// Cuts the beginning of a file name that is too long, because file names differ at their end.
void CutFile(std::string* file) {
  if (file->size() <= kMaxStackTextBytes) return;
  size_t begin = file->size() - kMaxStackTextBytes;
  while (begin < file->size() && (static_cast<unsigned char>((*file)[begin]) & 0xc0) == 0x80)
    ++begin;
  file->erase(0, begin);
}

template <class List>
bool CutList(List* list, int most) {
  if (list->size() <= most) return false;
  list->DeleteSubrange(most, list->size() - most);
  return true;
}

void CutProcess(pb::ProcessStacks& process) {
  CutText(process.mutable_command());
  CutText(process.mutable_python());
  CutText(process.mutable_no_python());
  CutText(process.mutable_no_native());
  if (CutList(process.mutable_threads(), kMaxStackThreads)) process.set_cut(true);
  for (pb::ThreadStack& thread : *process.mutable_threads()) {
    CutText(thread.mutable_name());
    CutText(thread.mutable_state());
    CutText(thread.mutable_call());
    CutText(thread.mutable_target());
    CutText(thread.mutable_waits_in());
    if (CutList(thread.mutable_frames(), kMaxStackFrames)) process.set_cut(true);
    for (pb::StackFrame& frame : *thread.mutable_frames()) {
      CutText(frame.mutable_function());
      CutFile(frame.mutable_file());
    }
  }
}

// Drops entries until the message is small enough: first the outermost frames of all threads, then
// threads, then processes.
void CutBytes(pb::RankStacks& stacks) {
  constexpr int kKeptFrames[] = {50, 20, 8};
  for (const int most : kKeptFrames) {
    if (stacks.ByteSizeLong() <= kMaxRankStackBytes) return;
    for (pb::ProcessStacks& process : *stacks.mutable_processes()) {
      for (pb::ThreadStack& thread : *process.mutable_threads())
        if (CutList(thread.mutable_frames(), most)) process.set_cut(true);
    }
  }
  constexpr int kKeptThreads[] = {64, 8, 1};
  for (const int most : kKeptThreads) {
    if (stacks.ByteSizeLong() <= kMaxRankStackBytes) return;
    for (pb::ProcessStacks& process : *stacks.mutable_processes())
      if (CutList(process.mutable_threads(), most)) process.set_cut(true);
  }
  while (stacks.processes_size() > 0 && stacks.ByteSizeLong() > kMaxRankStackBytes) {
    stacks.mutable_processes()->RemoveLast();
    stacks.set_cut(true);
  }
}

std::string_view BaseName(std::string_view path) { return path.substr(path.find_last_of('/') + 1); }

std::string StateText(const std::string& state) {
  constexpr std::pair<std::string_view, const char*> kStates[] = {
      {"R", "running"},
      {"S", "asleep"},
      {"D", "in an uninterruptible wait (D)"},
      {"T", "stopped (T)"},
      {"t", "stopped by a debugger (t)"},
      {"Z", "ended (Z)"}};
  for (const auto& [letter, text] : kStates) {
    if (state == letter) return text;
  }
  return state.empty() ? "" : "in state " + state;
}

bool SameFrames(const pb::ThreadStack& x, const pb::ThreadStack& y) {
  if (x.frames_size() != y.frames_size()) return false;
  for (int i = 0; i < x.frames_size(); ++i) {
    const pb::StackFrame& f = x.frames(i);
    const pb::StackFrame& g = y.frames(i);
    if (f.line() != g.line() || f.function() != g.function() || f.file() != g.file()) return false;
  }
  return true;
}

bool SameInKernel(const pb::ThreadStack& x, const pb::ThreadStack& y) {
  return x.state() == y.state() && x.call() == y.call() && x.target() == y.target() &&
         x.waits_in() == y.waits_in();
}

bool ReadSame(const pb::RankStacks& a, const pb::RankStacks& b) {
  const pb::ThreadStack* x = ShownThread(a);
  const pb::ThreadStack* y = ShownThread(b);
  if (x == nullptr || y == nullptr)
    return x == y && a.trouble() == b.trouble() && a.exchange() == b.exchange();
  if (a.exchange() != b.exchange()) return false;
  if (!SameFrames(*x, *y)) return false;
  return x->frames_size() > 0 || SameInKernel(*x, *y);
}

// A group of threads of one process that have the same stack.
struct ThreadGroup {
  const pb::ProcessStacks* process = nullptr;
  const pb::ThreadStack* thread = nullptr;  // first thread of the group
  size_t count = 0;
  uint64_t cpu_us = 0;
};

std::vector<ThreadGroup> GroupThreads(const pb::RankStacks& stacks) {
  std::vector<ThreadGroup> groups;
  for (const pb::ProcessStacks& process : stacks.processes()) {
    const size_t begin = groups.size();
    for (const pb::ThreadStack& thread : process.threads()) {
      size_t at = begin;
      while (at < groups.size() &&
             (groups[at].thread->name() != thread.name() ||
              !SameInKernel(*groups[at].thread, thread) || !SameFrames(*groups[at].thread, thread)))
        ++at;
      if (at == groups.size()) groups.push_back({&process, &thread});
      ++groups[at].count;
      groups[at].cpu_us += thread.cpu_us();
    }
  }
  return groups;
}

// Returns a number by which groups of threads are sorted: blocked and stopped threads first, then
// threads in Python, then running threads.
int Urgency(const ThreadGroup& group) {
  constexpr std::string_view kOrder = "DTt";
  const std::string& state = group.thread->state();
  const size_t at = state.empty() ? kOrder.npos : kOrder.find(state.front());
  if (at != kOrder.npos) return static_cast<int>(at);
  const int rest = static_cast<int>(kOrder.size());
  if (group.thread->frames_size() > 0) return rest;
  return state == "R" ? rest + 1 : rest + 2;
}

std::string SecondsText(uint64_t cpu_us) {
  constexpr double kMicroseconds = 1e6;
  char text[48];
  std::snprintf(text, sizeof text, "%.1f s of CPU time",
                static_cast<double>(cpu_us) / kMicroseconds);
  return text;
}

// Returns a line about a group of threads, such as "thread main: running, 0.5 s of CPU time".
std::string GroupText(const ThreadGroup& group) {
  std::string text = group.count == 1 ? "thread " : std::to_string(group.count) + " threads ";
  text += group.thread->name().empty() ? "(unknown)" : group.thread->name();
  if (const std::string kernel = KernelText(*group.thread); !kernel.empty()) text += ": " + kernel;
  if (group.thread->has_gil()) text += ", has the GIL";
  if (!group.thread->state().empty()) text += ", " + SecondsText(group.cpu_us);
  return text;
}

// Returns a clause for each stopped or uninterruptible process: "; python3 (pid 7) is stopped (T):
// kill -CONT 7 continues it".
std::string StoppedText(const pb::RankStacks& stacks) {
  std::string text;
  for (const pb::ProcessStacks& process : stacks.processes()) {
    const std::string state = process.threads_size() > 0 ? process.threads(0).state() : "";
    if (state != "T" && state != "t" && state != "D") continue;
    const std::string pid = std::to_string(process.pid());
    text += "; " + process.command() + " (pid " + pid + ") is " + StateText(state);
    if (state == "T") text += ": kill -CONT " + pid + " continues it";
  }
  return text;
}

}  // namespace

void CutRankStacks(pb::RankStacks& stacks) {
  stacks.DiscardUnknownFields();
  CutText(stacks.mutable_trouble());
  CutText(stacks.mutable_exchange());
  if (CutList(stacks.mutable_processes(), kMaxStackProcesses)) stacks.set_cut(true);
  for (pb::ProcessStacks& process : *stacks.mutable_processes()) CutProcess(process);
  CutBytes(stacks);
}

void CutFlightRecord(pb::FlightRecord& record) {
  record.DiscardUnknownFields();
  CutText(record.mutable_trouble());
  if (CutList(record.mutable_groups(), kMaxFlightGroups)) record.set_whole(false);
  constexpr int kFewFrames = 4;
  for (const int most : {kMaxFlightFrames, kFewFrames}) {
    for (pb::FlightGroup& group : *record.mutable_groups()) {
      CutText(group.mutable_name());
      CutText(group.mutable_description());
      CutList(group.mutable_operations(), kMaxFlightOperations);
      for (pb::FlightOperation& operation : *group.mutable_operations()) {
        CutText(operation.mutable_name());
        CutText(operation.mutable_input_sizes());
        CutText(operation.mutable_output_sizes());
        CutText(operation.mutable_dtypes());
        CutText(operation.mutable_state());
        CutList(operation.mutable_frames(), most);
        for (pb::StackFrame& frame : *operation.mutable_frames()) {
          CutText(frame.mutable_function());
          CutFile(frame.mutable_file());
        }
      }
    }
    if (record.ByteSizeLong() <= kMaxRankStackBytes) return;
  }
  while (record.groups_size() > 0 && record.ByteSizeLong() > kMaxRankStackBytes) {
    record.mutable_groups()->RemoveLast();
    record.set_whole(false);
  }
}

const pb::ThreadStack* ShownThread(const pb::RankStacks& stacks) {
  const pb::ThreadStack* native = nullptr;
  for (const pb::ProcessStacks& process : stacks.processes()) {
    for (const pb::ThreadStack& thread : process.threads()) {
      if (thread.frames_size() == 0) continue;
      if (!process.python().empty()) return &thread;
      native = &thread;
      break;
    }
  }
  if (native != nullptr) return native;
  for (const pb::ProcessStacks& process : stacks.processes())
    if (process.threads_size() > 0) return &process.threads(0);
  return nullptr;
}

std::string FramesText(const pb::ThreadStack& thread, size_t max_frames) {
  std::string text;
  size_t shown = 0;
  for (const pb::StackFrame& frame : thread.frames()) {
    if (shown > 0) text += " < ";
    if (shown++ == max_frames) return text + "...";
    text += frame.function() + " (" + std::string(BaseName(frame.file()));
    if (frame.line() > 0) text += ":" + std::to_string(frame.line());
    text += ")";
  }
  return SanitizeForTerminal(text);
}

std::string KernelText(const pb::ThreadStack& thread) {
  std::string text = StateText(thread.state());
  if (!thread.call().empty()) {
    text += (text.empty() ? "in " : " in ") + thread.call();
    if (!thread.target().empty()) text += " of " + thread.target();
  }
  if (!thread.waits_in().empty()) text += " (" + thread.waits_in() + ")";
  return SanitizeForTerminal(text);
}

std::string DescribeStacks(const pb::RankStacks& stacks, size_t max_lines) {
  constexpr size_t kFrames = 6;
  std::string text = StoppedText(stacks);
  if (!stacks.trouble().empty()) text += "; " + stacks.trouble();
  if (!stacks.exchange().empty()) text += "; it waits for " + stacks.exchange();
  text = SanitizeForTerminal(text);
  std::vector<ThreadGroup> groups = GroupThreads(stacks);
  std::ranges::stable_sort(groups, [](const ThreadGroup& a, const ThreadGroup& b) {
    return std::pair(Urgency(a), b.cpu_us) < std::pair(Urgency(b), a.cpu_us);
  });
  for (size_t i = 0; i < groups.size(); ++i) {
    if (i == max_lines) return text + "\n  and " + std::to_string(groups.size() - i) + " more";
    text += "\n  pid " + std::to_string(groups[i].process->pid()) + ", " +
            SanitizeForTerminal(GroupText(groups[i]));
    if (groups[i].thread->frames_size() > 0)
      text += "\n    " + FramesText(*groups[i].thread, kFrames);
  }
  return text;
}

std::string DescribeLooks(std::span<const pb::RankStacks> looks) {
  constexpr size_t kFrames = 6;
  std::vector<FoldedStacks> places = FoldStacks(looks);
  std::ranges::stable_sort(places, std::greater<>(),
                           [](const FoldedStacks& place) { return place.ranks.size(); });
  std::string text;
  for (const FoldedStacks& place : places) {
    text += "\n  in " + std::to_string(place.ranks.size()) + " of " + std::to_string(looks.size()) +
            " looks: ";
    const pb::ThreadStack* const thread = ShownThread(*place.stacks);
    const std::string frames = thread != nullptr ? FramesText(*thread, kFrames) : "";
    const std::string kernel =
        thread != nullptr ? KernelText(*thread) : SanitizeForTerminal(place.stacks->trouble());
    text += frames + (frames.empty() || kernel.empty() ? "" : ", ") + kernel;
  }
  return text;
}

std::string ListStacks(const pb::RankStacks& stacks) {
  std::string text;
  const auto add = [&](int depth, std::string_view line) {
    text.append(2 * static_cast<size_t>(depth), ' ');
    text += SanitizeForTerminal(line) + "\n";
  };
  if (!stacks.trouble().empty()) add(1, stacks.trouble());
  if (!stacks.exchange().empty()) {
    constexpr uint64_t kMilliseconds = 1000;
    add(1, "waits for " + stacks.exchange() + ", " +
               std::to_string(stacks.exchange_ms() / kMilliseconds) + " s");
  }
  const pb::ProcessStacks* process = nullptr;
  for (const ThreadGroup& group : GroupThreads(stacks)) {
    if (group.process != process) {
      process = group.process;
      add(1, process->command() + " (pid " + std::to_string(process->pid()) +
                 (process->python().empty() ? "" : ", CPython " + process->python()) + ")" +
                 (process->no_python().empty() ? "" : ": " + process->no_python()) +
                 (process->no_native().empty() ? "" : ": no frames: " + process->no_native()) +
                 (process->torn() ? ", changed while it was read" : "") +
                 (process->cut() ? ", not all is shown" : ""));
    }
    add(2, GroupText(group));
    for (const pb::StackFrame& frame : group.thread->frames()) {
      add(3, frame.function() + " (" + frame.file() +
                 (frame.line() > 0 ? ":" + std::to_string(frame.line()) : "") + ")");
    }
  }
  if (stacks.cut()) add(1, "more processes are not shown");
  return text;
}

std::string RanksText(std::span<const uint32_t> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t begin = 0; begin < ranks.size();) {
    size_t end = begin + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (begin > 0) text += ", ";
    text += std::to_string(ranks[begin]);
    if (end - begin > 1) text += "-" + std::to_string(ranks[end - 1]);
    begin = end;
  }
  return text;
}

std::vector<FoldedStacks> FoldStacks(std::span<const pb::RankStacks> ranks) {
  std::vector<FoldedStacks> folded;
  for (const pb::RankStacks& stacks : ranks) {
    const auto same = std::ranges::find_if(
        folded, [&](const FoldedStacks& group) { return ReadSame(*group.stacks, stacks); });
    if (same != folded.end())
      same->ranks.push_back(stacks.rank());
    else
      folded.push_back({{stacks.rank()}, &stacks});
  }
  for (FoldedStacks& group : folded) std::ranges::sort(group.ranks);
  std::ranges::sort(folded, {}, [](const FoldedStacks& group) { return group.ranks.front(); });
  return folded;
}

}  // namespace dslaunch
