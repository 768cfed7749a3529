// Formats the result of a rank's profile (profile.json in proto/contract/rank_files.h). Pure.
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
  // Bytes that the allocator had reserved for this run when activations were at their maximum; 0 if
  // they were not measured.
  int64_t allocated = 0;
};

std::string ProfileJson(const ProfileResult& result);

// Returns the table of operators, followed by lines about communication and memory.
std::string ProfileText(const ProfileResult& result, int64_t most_rows);

}  // namespace dslaunch
