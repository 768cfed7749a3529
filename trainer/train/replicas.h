// Comparison of the ranks' copies of the weights. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace dslaunch {

// Continues `hash` with these bytes. Any change of a single byte changes the result; the hash does
// not resist forgery.
uint64_t HashBytes(const void* data, size_t bytes, uint64_t hash);

// `hashes` has an entry for each rank. Returns "" if they are equal, else a sentence with the ranks
// that differ from the majority, the step and a hint. `good_step` is the last step at which they
// were equal. `names`: see ByRank (trainer/base/by_rank.h).
std::string DriftMessage(const std::vector<uint64_t>& hashes, int64_t step, int64_t good_step,
                         const std::vector<size_t>& names = {});

}  // namespace dslaunch
