// How ZeRO cuts a model into shards. Pure.
//
// A unit is some parameters of one dtype, laid out one after the other in one flat piece of memory
// that is padded at its end, so that it falls into equal parts, one for each rank (ZeRO paper,
// section 5). Units are what travels: gradients are reduced, and parameters gathered, one unit at a
// time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trainer/config/zero_config.h"
#include "trainer/shards/shards.h"

namespace dslaunch {

// Elements to which a rank's part is rounded up.
inline constexpr int64_t kShardAlignment = 16;

// Units whose gradients are on their way at the same time, at most.
inline constexpr size_t kMostUnderWay = 2;

struct ShardedParameter {
  std::string name;  // module path; what stands before its last dot is the module
  int64_t elements = 0;
  int dtype = 0;  // only compared
  bool trained = true;
  bool alone = false;  // in a unit of its own
};

struct FlatParameter {
  std::string name;                // for messages: its module, or its first parameter and "..."
  std::vector<size_t> parameters;  // by index, in the order in which they lie
  std::vector<int64_t> offsets;    // of each
  int64_t elements = 0;            // of the parameters
  int64_t shard_elements = 0;      // of each rank's part
  bool trained = true;
  // The parameters stay whole between steps. Else (stage 3) a rank keeps its part alone, and
  // gathers the rest for as long as somebody reads it.
  bool persistent = true;
};

// Each parameter is in one unit at most. Units are in the order in which a backward pass completes
// them where it runs against the parameters' order. At stages 1 and 2 a unit has at most
// `bucket_elements` (more only where a single parameter has more). At stage 3 a unit is what one
// module holds, apart from the small parameters that zero.param_persistence_threshold and
// model_persistence_threshold keep whole: those share units as at stage 2. In none are frozen
// parameters that stay whole.
std::vector<FlatParameter> CutIntoUnits(const std::vector<ShardedParameter>& parameters,
                                        const ZeroConfig& zero, int64_t bucket_elements,
                                        int world_size);

// Of a unit of parameters that stay whole: reduce_bucket_size and allgather_bucket_size are limits,
// within which messages are as large as at stage 0, for smaller ones begin to travel earlier.
int64_t BucketElements(const ZeroConfig& zero, int64_t element_bytes);

// Returns the pieces of parameters that the part of `rank` holds, in the order of their places.
// `elements` has an entry for each parameter.
std::vector<ShardPiece> PiecesOf(const FlatParameter& unit, const std::vector<int64_t>& elements,
                                 int rank);

}  // namespace dslaunch
