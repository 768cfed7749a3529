#include "proto/wire/rank_stacks.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/text/sanitize.h"

namespace dslaunch {
namespace {

// Keeps the beginning of a text, up to a whole UTF-8 character.
template <class Text>
void CutText(Text* text) {
  if (text->size() <= kMaxStackTextBytes) return;
  size_t end = kMaxStackTextBytes;
  while (end > 0 && (static_cast<unsigned char>((*text)[end]) & 0xc0) == 0x80) --end;
  text->resize(end);
}

// File names differ at their end, so that is kept.
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

// Drops the last entries until the message is small enough: frames beyond the innermost ones of all
// threads first, then threads, then processes.
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
}

std::string_view BaseName(std::string_view path) { return path.substr(path.find_last_of('/') + 1); }

bool ReadSame(const pb::RankStacks& a, const pb::RankStacks& b) {
  const pb::ThreadStack* x = ShownThread(a);
  const pb::ThreadStack* y = ShownThread(b);
  if (x == nullptr || y == nullptr)
    return x == y && a.trouble() == b.trouble() && a.exchange() == b.exchange();
  if (a.exchange() != b.exchange()) return false;
  if (x->frames_size() != y->frames_size()) return false;
  for (int i = 0; i < x->frames_size(); ++i) {
    const pb::StackFrame& f = x->frames(i);
    const pb::StackFrame& g = y->frames(i);
    if (f.line() != g.line() || f.function() != g.function() || f.file() != g.file()) return false;
  }
  if (x->frames_size() > 0) return true;
  return x->state() == y->state() && x->call() == y->call() && x->target() == y->target() &&
         x->waits_in() == y->waits_in();
}

}  // namespace

void CutRankStacks(pb::RankStacks& stacks) {
  CutText(stacks.mutable_trouble());
  CutText(stacks.mutable_exchange());
  if (CutList(stacks.mutable_processes(), kMaxStackProcesses)) stacks.set_cut(true);
  for (pb::ProcessStacks& process : *stacks.mutable_processes()) CutProcess(process);
  CutBytes(stacks);
}

const pb::ThreadStack* ShownThread(const pb::RankStacks& stacks) {
  for (const pb::ProcessStacks& process : stacks.processes()) {
    for (const pb::ThreadStack& thread : process.threads())
      if (thread.frames_size() > 0) return &thread;
  }
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
  std::string text;
  if (thread.state() == "T") {
    text = "stopped (T)";
  } else if (thread.state() == "t") {
    text = "stopped by a debugger (t)";
  } else if (thread.state() == "D") {
    text = "in an uninterruptible wait (D)";
  } else if (thread.state() == "Z") {
    text = "ended (Z)";
  } else if (thread.state() == "R") {
    return "running";
  }
  if (!thread.call().empty()) {
    text += (text.empty() ? "in " : ", in ") + thread.call() + "()";
    if (!thread.target().empty()) text += " of " + thread.target();
  }
  if (!thread.waits_in().empty())
    text +=
        (text.empty() ? "in the kernel's " : " (") + thread.waits_in() + (text.empty() ? "" : ")");
  return SanitizeForTerminal(text);
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
