// Decides how ZeRO cuts a model into shards. Pure functions.
//
// A unit consists of parameters of one dtype that are stored one after the other in flat memory.
// The memory is padded at its end, so that it divides into equal parts, one for each rank (ZeRO
// paper, section 5). Gradients are reduced and parameters are gathered one unit at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trainer/config/zero_config.h"
#include "trainer/shards/shards.h"

namespace dslaunch {

// Divisor of the number of elements in each rank's part of a unit.
inline constexpr int64_t kShardAlignment = 16;

// Maximum number of units whose gradients are reduced at the same time.
inline constexpr size_t kMostUnderWay = 2;

struct ShardedParameter {
  std::string name;  // module path of the parameter; the module is the text before the last dot
  int64_t elements = 0;
  int dtype = 0;  // number that identifies the dtype
  bool trained = true;
  bool alone = false;  // true if the parameter gets a separate unit
};

struct FlatParameter {
  std::string name;  // unit's name in messages: the module, or the first parameter and " ..."
  std::vector<size_t> parameters;  // indices of the unit's parameters, in memory order
  // Position in the unit of the first element of each of `parameters`.
  std::vector<int64_t> offsets;
  int64_t elements = 0;        // number of elements of all parameters in the unit, without padding
  int64_t shard_elements = 0;  // number of elements of each rank's part, with padding
  bool trained = true;
  // True if the parameters stay whole between steps. If false (stage 3), a rank keeps only its
  // part, and gathers the other parts while operations read them.
  bool persistent = true;
};

// Returns units that contain each parameter at most once. Units are in the order in which a
// backward pass completes them if it runs in the reverse order of the parameters. At stages 1 and 2
// a unit has at most `bucket_elements` elements, except that a single larger parameter forms a
// unit. At stage 3 a unit has the parameters of one module. Small parameters that
// zero.param_persistence_threshold and model_persistence_threshold keep whole share units as at
// stage 2. Frozen parameters that stay whole are in no unit.
std::vector<FlatParameter> CutIntoUnits(const std::vector<ShardedParameter>& parameters,
                                        const ZeroConfig& zero, int64_t bucket_elements,
                                        int world_size);

// Returns the maximum number of elements of a unit whose parameters stay whole. reduce_bucket_size
// and allgather_bucket_size are upper bounds. Units are not larger than the messages at stage 0,
// because smaller messages can be sent earlier.
int64_t BucketElements(const ZeroConfig& zero, int64_t element_bytes);

// Returns the pieces of parameters that the part of `rank` holds, in memory order. `elements` has
// the number of elements of each parameter.
std::vector<ShardPiece> PiecesOf(const FlatParameter& unit, const std::vector<int64_t>& elements,
                                 int rank);

}  // namespace dslaunch
