// What a rank's profile came to (profile.json of proto/contract/rank_files.h). Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/base/memory_bytes.h"
#include "trainer/profile/communication.h"
#include "trainer/profile/operator_table.h"

namespace dslaunch {

struct ProfileResult {
  int rank = 0;
  int64_t steps = 0;
  double wall_s = 0;
  std::vector<OperatorRow> rows;
  CommunicationSummary communication;
  MemoryBytes memory = {};
  // What the allocator had given out, of what this run allocated, when the activations were at
  // their largest; 0: not measured.
  int64_t allocated = 0;
};

std::string ProfileJson(const ProfileResult& result);

// The table, and lines on communication and memory.
std::string ProfileText(const ProfileResult& result, int64_t most_rows);

}  // namespace dslaunch
