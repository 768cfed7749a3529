// Limits and texts of the stacks of ranks (proto/stacks.proto). Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/stacks.pb.h"

namespace dslaunch {

inline constexpr int kMaxStackFrames = 256;        // frames of a thread; the innermost are kept
inline constexpr int kMaxStackThreads = 512;       // threads of a process
inline constexpr int kMaxStackProcesses = 64;      // processes of a rank
inline constexpr size_t kMaxStackTextBytes = 256;  // bytes of each text
inline constexpr size_t kMaxRankStackBytes = 256 << 10;  // bytes of the whole message of a rank

// Cuts texts and lists to these limits, and drops frames and then threads from the end until the
// message is at most kMaxRankStackBytes long; sets `cut` where something was dropped.
void CutRankStacks(pb::RankStacks& stacks);

inline constexpr int kMaxFlightGroups = 64;
inline constexpr int kMaxFlightOperations = 16;  // limit of a group; the oldest are kept
inline constexpr int kMaxFlightFrames = 16;      // limit of an operation; the innermost are kept

// Cuts texts and lists to these limits, and drops outer frames and then the last groups until the
// message is at most kMaxRankStackBytes long; `whole` is false where a group was dropped.
void CutFlightRecord(pb::FlightRecord& record);

// Returns the thread that shows best what the rank does: the main thread of its own process if that
// has Python frames, or of the first process that has; else the main thread of the last process
// with frames of C or C++, which is the program that a shell waits for; else the rank's main
// thread. nullptr if no thread is known.
const pb::ThreadStack* ShownThread(const pb::RankStacks& stacks);

// Returns "load (data.py:41) < train (train.py:88) < <module> (train.py:120)", innermost first,
// with at most `max_frames` frames and "..." for the rest; file names are shortened to their last
// component. Empty without frames. Sanitized for a terminal.
std::string FramesText(const pb::ThreadStack& thread, size_t max_frames);

// Returns what the thread does in the kernel: "in read() of a FIFO (pipe_read)", "running"; empty
// if nothing is known. Sanitized for a terminal.
std::string KernelText(const pb::ThreadStack& thread);

// Describes what a rank does, for people: first each process that is stopped or uninterruptible
// ("; python3 (pid 7) is stopped (T): ..."), then one line for each group of threads that do the
// same, with their frames, the busiest first; at most `max_lines` lines, each preceded by a
// newline. Sanitized.
std::string DescribeStacks(const pb::RankStacks& stacks, size_t max_lines);

// Describes looks at one rank at different times, for people: a line for each place where it was,
// with the number of looks, the most frequent first, each preceded by a newline. Sanitized.
std::string DescribeLooks(std::span<const pb::RankStacks> looks);

// Lists all threads of a rank with all their frames, one line each, each line ended by a newline.
// Threads of one process that do the same are folded. Sanitized.
std::string ListStacks(const pb::RankStacks& stacks);

// Returns ascending `ranks` as "rank 3" or "ranks 0-2, 4-15".
std::string RanksText(std::span<const uint32_t> ranks);

// Ranks whose stacks read the same.
struct FoldedStacks {
  std::vector<uint32_t> ranks;             // ascending
  const pb::RankStacks* stacks = nullptr;  // stacks of the first rank; borrowed
};

// Groups ranks whose shown threads have the same frames, or without frames the same call, target
// and kernel function; ordered by first rank.
std::vector<FoldedStacks> FoldStacks(std::span<const pb::RankStacks> ranks);

}  // namespace dslaunch
