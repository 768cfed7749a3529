// Limits and formats the stacks of ranks (proto/stacks.proto). Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/stacks.pb.h"

namespace dslaunch {

// The limit on the frames of a thread. The innermost frames are kept.
inline constexpr int kMaxStackFrames = 256;
inline constexpr int kMaxStackThreads = 512;             // limit on the threads of a process
inline constexpr int kMaxStackProcesses = 64;            // limit on the processes of a rank
inline constexpr size_t kMaxStackTextBytes = 256;        // limit on each text
inline constexpr size_t kMaxRankStackBytes = 256 << 10;  // limit on the whole message of a rank

// Cuts texts and lists to these limits. Drops frames and then threads from the end until the
// message has at most kMaxRankStackBytes. Sets `cut` where something was dropped.
void CutRankStacks(pb::RankStacks& stacks);

inline constexpr int kMaxFlightGroups = 64;
inline constexpr int kMaxFlightOperations = 16;  // limit per group; the oldest are kept
inline constexpr int kMaxFlightFrames = 16;      // limit per operation; the innermost are kept

// Cuts texts and lists to these limits. Drops outer frames and then the last groups until the
// message has at most kMaxRankStackBytes. Sets `whole` to false if a group was dropped.
void CutFlightRecord(pb::FlightRecord& record);

// Returns the thread that shows best what the rank is doing: the main thread of its own process if
// that has Python frames, or of the first process that has some; else the main thread of the last
// process with frames of C or C++, which is the program for which a shell waits; else the rank's
// main thread. Returns nullptr if no thread is known.
const pb::ThreadStack* ShownThread(const pb::RankStacks& stacks);

// Returns the frames as text, "load (data.py:41) < train (train.py:88) < <module> (train.py:120)",
// innermost first, with at most `max_frames` frames and "..." for the rest. File names are
// shortened to their last component. Empty without frames. Sanitized for a terminal.
std::string FramesText(const pb::ThreadStack& thread, size_t max_frames);

// Returns what the thread is doing in the kernel, such as "in read() of a FIFO (pipe_read)" or
// "running"; empty if nothing is known. Sanitized for a terminal.
std::string KernelText(const pb::ThreadStack& thread);

// Returns a description of what a rank is doing: first each process that is stopped or
// uninterruptible ("; python3 (pid 7) is stopped (T): ..."), then one line for each group of
// threads that are doing the same, with their frames, the busiest first. There are at most
// `max_lines` lines, each preceded by a newline. Sanitized for a terminal.
std::string DescribeStacks(const pb::RankStacks& stacks, size_t max_lines);

// Returns a description of looks at one rank at different times: a line for each place where the
// rank was, with the number of looks, the most frequent first. Each line is preceded by a newline.
// Sanitized for a terminal.
std::string DescribeLooks(std::span<const pb::RankStacks> looks);

// Returns a list of all threads of a rank with all their frames, one thread per line, each line
// ended by a newline. Threads of one process that are doing the same are combined. Sanitized for a
// terminal.
std::string ListStacks(const pb::RankStacks& stacks);

// Returns ranks as "rank 3" or "ranks 0-2, 4-15". Precondition: `ranks` is ascending.
std::string RanksText(std::span<const uint32_t> ranks);

// Ranks that have the same stacks.
struct FoldedStacks {
  std::vector<uint32_t> ranks;             // ranks in ascending order
  const pb::RankStacks* stacks = nullptr;  // stacks of the first rank; not owned
};

// Groups ranks whose shown threads have the same frames, or without frames the same call, target
// and kernel function. The groups are sorted by their first rank.
std::vector<FoldedStacks> FoldStacks(std::span<const pb::RankStacks> ranks);

}  // namespace dslaunch
