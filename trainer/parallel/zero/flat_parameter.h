// How ZeRO cuts a model into shards. Pure.
//
// A unit is some parameters of one dtype, laid out one after the other in one flat piece of memory
// that is padded at its end, so that it falls into equal parts, one for each rank (ZeRO paper,
// section 5). Gradients are reduced and parameters gathered one unit at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trainer/config/zero_config.h"
#include "trainer/shards/shards.h"

namespace dslaunch {

// The number of elements of a rank's part is a multiple of this.
inline constexpr int64_t kShardAlignment = 16;

// Limit of units whose gradients are being reduced at the same time.
inline constexpr size_t kMostUnderWay = 2;

struct ShardedParameter {
  std::string name;  // module path: the text before the last dot is the module
  int64_t elements = 0;
  int dtype = 0;  // any number for a dtype; units compare it only
  bool trained = true;
  bool alone = false;  // gets a unit of its own
};

struct FlatParameter {
  std::string name;                // name in messages: module, or first parameter and "..."
  std::vector<size_t> parameters;  // indices, in the order of their memory
  std::vector<int64_t> offsets;    // first element of each of `parameters`
  int64_t elements = 0;            // all parameters, without padding
  int64_t shard_elements = 0;      // each rank's part, with padding
  bool trained = true;
  // The parameters stay whole between steps. Otherwise (stage 3) a rank keeps only its part, and
  // gathers the rest while operations read it.
  bool persistent = true;
};

// Returns units with each parameter in at most one of them, in the order in which a backward pass
// completes them if it runs in the reverse order of the parameters. At stages 1 and 2 a unit has at
// most `bucket_elements` (more only if a single parameter has more). At stage 3 a unit has the
// parameters of one module, except for small parameters that zero.param_persistence_threshold and
// model_persistence_threshold keep whole: those share units as at stage 2. Frozen parameters that
// stay whole are in no unit.
std::vector<FlatParameter> CutIntoUnits(const std::vector<ShardedParameter>& parameters,
                                        const ZeroConfig& zero, int64_t bucket_elements,
                                        int world_size);

// Returns the limit of a unit of parameters that stay whole. reduce_bucket_size and
// allgather_bucket_size are upper bounds; below them messages are as large as at stage 0, because
// smaller ones are sent earlier.
int64_t BucketElements(const ZeroConfig& zero, int64_t element_bytes);

// Returns the pieces of parameters that the part of `rank` holds, in the order of their places.
// `elements` has an entry for each parameter.
std::vector<ShardPiece> PiecesOf(const FlatParameter& unit, const std::vector<int64_t>& elements,
                                 int rank);

}  // namespace dslaunch
