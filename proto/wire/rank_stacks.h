// Limits and formats the stacks of ranks (proto/stacks.proto). Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/stacks.pb.h"

namespace dslaunch {

// Maximum frames of a thread. The innermost frames are kept.
inline constexpr int kMaxStackFrames = 256;
inline constexpr int kMaxStackThreads = 512;             // maximum threads of a process
inline constexpr int kMaxStackProcesses = 64;            // maximum processes of a rank
inline constexpr size_t kMaxStackTextBytes = 256;        // maximum bytes of each text
inline constexpr size_t kMaxRankStackBytes = 256 << 10;  // maximum bytes of the message of a rank

// Cuts texts and lists to the limits above. Drops frames and then threads from the end until the
// message has at most kMaxRankStackBytes. Sets `cut` in each message from which something was
// dropped.
void CutRankStacks(pb::RankStacks& stacks);

inline constexpr int kMaxFlightGroups = 64;
// Maximum operations of a group; the oldest are kept.
inline constexpr int kMaxFlightOperations = 16;
// Maximum frames of an operation; the innermost are kept.
inline constexpr int kMaxFlightFrames = 16;

// Cuts texts and lists to the limits above. Drops outer frames and then the last groups until the
// message has at most kMaxRankStackBytes. Sets `whole` to false if a group was dropped.
void CutFlightRecord(pb::FlightRecord& record);

// Returns the thread that represents the activity of the rank best. This is the main thread of its
// own process if that has Python frames, or of the first process with Python frames. Without
// Python, this is the main thread of the last process with frames of C or C++, which is the program
// for which a shell waits; else the rank's main thread. Returns nullptr if no thread is known.
const pb::ThreadStack* ShownThread(const pb::RankStacks& stacks);

// Returns the frames as text, "load (data.py:41) < train (train.py:88) < <module> (train.py:120)",
// innermost first, with at most `max_frames` frames and "..." for the rest. File names are
// shortened to their last component. Returns an empty string if the thread has no frames. Sanitized
// for a terminal.
std::string FramesText(const pb::ThreadStack& thread, size_t max_frames);

// Returns the thread's activity in the kernel, such as "in read() of a FIFO (pipe_read)" or
// "running"; empty if unknown. Sanitized for a terminal.
std::string KernelText(const pb::ThreadStack& thread);

// Returns a description of a rank's activity: first each process that is stopped or uninterruptible
// ("; python3 (pid 7) is stopped (T): ..."), then one line for each group of threads with the same
// stack, the busiest first. There are at most `max_lines` lines, each preceded by a newline.
// Sanitized for a terminal.
std::string DescribeStacks(const pb::RankStacks& stacks, size_t max_lines);

// Returns a description of the stacks of one rank at different times: a line for each different
// stack, with the number of looks that found it, the most frequent first. Each line is preceded by
// a newline. Sanitized for a terminal.
std::string DescribeLooks(std::span<const pb::RankStacks> looks);

// Returns a list of all threads of a rank with all their frames, one thread per line, each line
// ended by a newline. Threads of one process with the same stack are combined. Sanitized for a
// terminal.
std::string ListStacks(const pb::RankStacks& stacks);

// Returns a text for a list of ranks, such as "rank 3" or "ranks 0-2, 4-15". Precondition: `ranks`
// is ascending.
std::string RanksText(std::span<const uint32_t> ranks);

// A group of ranks that have the same stacks.
struct FoldedStacks {
  std::vector<uint32_t> ranks;             // ranks in ascending order
  const pb::RankStacks* stacks = nullptr;  // stacks of the group's first rank; not owned
};

// Groups ranks whose threads at ShownThread() have the same frames or, without frames, the same
// system call, file and kernel function. Returns the groups sorted by their first rank.
std::vector<FoldedStacks> FoldStacks(std::span<const pb::RankStacks> ranks);

}  // namespace dslaunch
