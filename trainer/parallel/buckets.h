// Divides gradients into messages between the ranks. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dslaunch {

// Cuts `order`, which contains the index of each parameter once, into buckets of at most
// `bucket_bytes` bytes. A parameter that is larger gets a separate bucket. `bytes` has the size of
// each parameter.
std::vector<std::vector<size_t>> AssignBuckets(const std::vector<int64_t>& bytes,
                                               const std::vector<size_t>& order,
                                               int64_t bucket_bytes);

}  // namespace dslaunch
