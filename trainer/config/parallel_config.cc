#include "trainer/config/parallel_config.h"

#include <iterator>

#include "trainer/config/key_table.h"

namespace dslaunch {
namespace {

using Mode = ParallelConfig::Mode;

constexpr const char* kModes[] = {"all_reduce", "parameter_server", "local_sgd", "diloco",
                                  "powersgd"};
constexpr int64_t kMaxRankSteps = int64_t{1} << 40;

KeyTable<ParallelConfig> ModeKeys() {
  return {WordKey("mode", &ParallelConfig::mode, {std::begin(kModes), std::end(kModes)},
                  "all_reduce: every rank adds up the gradients of every step; parameter_server: "
                  "the first ranks keep the optimizer and add up gradients, each for its part of "
                  "the parameters; local_sgd: ranks train apart and average their weights now and "
                  "then; diloco: what they have moved is the gradient of an outer optimizer; "
                  "powersgd: gradients travel as products of two thin matrices; not with ZeRO or a "
                  "pipeline; not a key of DeepSpeed; default all_reduce")};
}

KeyTable<ParallelConfig> ServerKeys() {
  return {IntKey("servers", &ParallelConfig::servers, {1}, "number of servers, which train too"),
          IntKey("staleness", &ParallelConfig::staleness, {0, kMaxRankSteps},
                 "servers update as gradients come, and a rank may be at most so many steps ahead "
                 "of the slowest; default: every step is all ranks' together")};
}

KeyTable<ParallelConfig> InnerKeys() {
  return {Required(IntKey("inner_steps", &ParallelConfig::inner_steps, {1, kMaxRankSteps},
                          "required; steps between two exchanges"),
                   "is missing; give the number of steps between two exchanges")};
}

KeyTable<ParallelConfig> OuterKeys() {
  return {NumberKey("outer_lr", &ParallelConfig::outer_lr, {0}, "learning rate of the outer SGD"),
          NumberKey("outer_momentum", &ParallelConfig::outer_momentum, {0, 1}, ""),
          BoolKey("outer_nesterov", &ParallelConfig::outer_nesterov,
                  "default: whether there is a momentum")};
}

// Names and defaults of PyTorch's PowerSGDState.
KeyTable<ParallelConfig> PowerSgdKeys() {
  return {IntKey("matrix_approximation_rank", &ParallelConfig::matrix_approximation_rank, {1},
                 "columns of the thin matrices; as all keys of this mode PyTorch's of "
                 "PowerSGDState"),
          IntKey("start_powerSGD_iter", &ParallelConfig::start_iter, {0},
                 "steps at the start whose gradients travel whole"),
          NumberKey("min_compression_rate", &ParallelConfig::min_compression_rate, {0},
                    "a gradient that would not become this many times smaller travels whole"),
          BoolKey("use_error_feedback", &ParallelConfig::use_error_feedback,
                  "what a step has not sent is added to the next one's gradients"),
          BoolKey("warm_start", &ParallelConfig::warm_start, "start from the last step's matrices"),
          NumberKey("orthogonalization_epsilon", &ParallelConfig::orthogonalization_epsilon, {0, 1},
                    "added to the norm of each column, for columns that are 0"),
          IntKey("random_seed", &ParallelConfig::random_seed, {0, (int64_t{1} << 32) - 1},
                 "of the first matrices")};
}

// Keys of some modes only.
struct OfMode {
  const char* modes;  // text for messages
  KeyTable<ParallelConfig> keys;
  bool (*applies)(const ParallelConfig& parallel);
};

const std::vector<OfMode>& KeysOfModes() {
  static const std::vector<OfMode> kKeys = {
      {"parameter_server", ServerKeys(),
       [](const ParallelConfig& parallel) { return parallel.mode == Mode::kParameterServer; }},
      {"local_sgd or diloco", InnerKeys(),
       [](const ParallelConfig& parallel) { return parallel.TrainsApart(); }},
      {"diloco", OuterKeys(),
       [](const ParallelConfig& parallel) { return parallel.mode == Mode::kDiloco; }},
      {"powersgd", PowerSgdKeys(),
       [](const ParallelConfig& parallel) { return parallel.mode == Mode::kPowerSgd; }}};
  return kKeys;
}

}  // namespace

const char* ParallelModeName(Mode mode) { return kModes[static_cast<size_t>(mode)]; }

ParallelConfig ParseParallel(JsonObject object, int64_t ranks) {
  ParallelConfig parallel = ReadKeys(object, ModeKeys());
  for (const OfMode& of : KeysOfModes()) {
    ReadKeysIf(of.applies(parallel), object, of.keys, parallel,
               std::string("is of the mode ") + of.modes + "; leave it out, or set that");
  }
  object.RefuseUnknown();
  if (!object.Has("outer_nesterov")) parallel.outer_nesterov = parallel.outer_momentum != 0;
  if (parallel.outer_nesterov && parallel.outer_momentum == 0) {
    object.Fail("outer_nesterov", "is true, but outer_momentum is 0; remove one of them");
  }
  if (ranks > 0 && parallel.servers > ranks) {
    object.Fail("servers", "is " + std::to_string(parallel.servers) + ", but there are " +
                               std::to_string(ranks) + " ranks, of which the first are servers");
  }
  return parallel;
}

nlohmann::ordered_json ShowParallel(const ParallelConfig& parallel) {
  nlohmann::ordered_json json = ShowKeys(ModeKeys(), parallel);
  for (const OfMode& of : KeysOfModes()) {
    if (of.applies(parallel)) json.update(ShowKeys(of.keys, parallel));
  }
  return json;
}

}  // namespace dslaunch
