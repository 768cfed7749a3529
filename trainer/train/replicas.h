// Compares the ranks' copies of the weights. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace dslaunch {

// Returns `hash` continued with `bytes` bytes at `data`. A change of any single byte changes the
// result. The hash does not resist forgery.
uint64_t HashBytes(const void* data, size_t bytes, uint64_t hash);

// Compares `hashes`, one per rank. Returns "" if they are equal, else a sentence with the ranks
// that differ from the majority, the step and a hint. `good_step` is the last step after which the
// hashes were equal. `names` has the numbers of the ranks; empty if these equal the indices in
// `hashes`.
std::string DriftMessage(const std::vector<uint64_t>& hashes, int64_t step, int64_t good_step,
                         const std::vector<size_t>& names = {});

}  // namespace dslaunch
