// Formats values in the findings and the table of `dslaunch doctor`.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "proto/inspect.pb.h"

namespace dslaunch {

inline constexpr uint64_t kUnlimited = UINT64_MAX;  // value of a pb::Limit without a limit

// Returns a size such as "512 MiB", "1.5 GiB" or "64 GiB".
inline std::string MemoryText(uint64_t bytes) {
  char text[32];
  const double gib = static_cast<double>(bytes) / (1 << 30);
  if (gib < 1)
    std::snprintf(text, sizeof text, "%llu MiB", static_cast<unsigned long long>(bytes >> 20));
  else
    std::snprintf(text, sizeof text, gib < 10 ? "%.1f GiB" : "%.0f GiB", gib);
  return text;
}

// Returns a difference of times such as "+2 ms", "-3.4 s" or "+2 h".
inline std::string SignedTime(int64_t us) {
  char text[32];
  const double s = static_cast<double>(us) / 1e6;
  if (std::abs(s) < 1)
    std::snprintf(text, sizeof text, "%+.0f ms", s * 1e3);
  else if (std::abs(s) < 120)
    std::snprintf(text, sizeof text, "%+.1f s", s);
  else if (std::abs(s) < 7200)
    std::snprintf(text, sizeof text, "%+.0f min", s / 60);
  else
    std::snprintf(text, sizeof text, "%+.0f h", s / 3600);
  return text;
}

inline std::string JoinTexts(const std::vector<std::string>& words, const std::string& separator) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
  return text;
}

// Returns the names and counts of the installed GPUs, such as "2 x NVIDIA H100".
inline std::string GpuNames(const pb::Gpus& gpus) {
  std::vector<std::pair<std::string, int>> counts;
  for (const pb::Gpu& gpu : gpus.installed()) {
    auto known = std::ranges::find(counts, gpu.name(), &std::pair<std::string, int>::first);
    if (known == counts.end()) known = counts.insert(known, {gpu.name(), 0});
    ++known->second;
  }
  std::vector<std::string> texts;
  for (const auto& [name, count] : counts) texts.push_back(std::to_string(count) + " x " + name);
  return JoinTexts(texts, ", ");
}

// Returns the first attempt that reached the rendezvous; nullptr if none did.
inline const pb::ReachResult* FirstReached(const pb::ReachReply& reply) {
  for (const pb::ReachResult& attempt : reply.results()) {
    if (attempt.reached()) return &attempt;
  }
  return nullptr;
}

}  // namespace dslaunch
