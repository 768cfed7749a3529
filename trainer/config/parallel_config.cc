#include "trainer/config/parallel_config.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "trainer/config/json/key_table.h"

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

// Returns the keys of PowerSGD, with the names and defaults of PyTorch's PowerSGDState.
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

// A group of keys that only some modes have.
struct OfMode {
  const char* modes;  // names of these modes, for messages
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

constexpr int64_t kMostParts = 4096;

const KeyTable<TensorParallelConfig>& TensorParallelKeys() {
  using T = TensorParallelConfig;
  static const KeyTable<T> kKeys = {
      {"autotp_size",
       [](JsonObject& object, const char* key, T& tensor) {
         // DeepSpeed's configurations use 0 for layers that are not divided, so 0 is accepted as 1.
         tensor.size = std::max<int64_t>(object.Int(key, 0, kMostParts).value_or(1), 1);
       },
       [](const T& tensor) { return tensor.size; },
       "ranks that divide each layer of the model between them; 0 and 1: not divided, with which "
       "other keys of the section mean nothing; default 1"},
      BoolKey(
          "sequence_parallel", &T::sequence_parallel,
          "norms, residuals and their dropouts work on 1 / autotp_size of each sample's tokens, "
          "with the same bytes exchanged; not a key of DeepSpeed"),
      BoolKey("allow_across_nodes", &T::allow_across_nodes,
              "the ranks that divide a layer may be on several nodes, which exchange activations "
              "several times in each layer; not a key of DeepSpeed"),
      // In DeepSpeed these keys select how layers are found and when exchanges run. Here the
      // model's family decides both, so the keys have no effect.
      IgnoredBool<T>("keep_module_on_host"),
      IgnoredBool<T>("tp_overlap_comm"),
      IgnoredBool<T>("vocab_parallel_lm_head")};
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

TensorParallelConfig ParseTensorParallel(JsonObject object, int64_t program_size) {
  TensorParallelConfig tensor = ReadKeys(object, TensorParallelKeys());
  const std::set<std::string> layouts = {"injection_policy_tuple",
                                         "kernel_inject",
                                         "partition_config",
                                         "preset_model",
                                         "replace_with_kernel_inject",
                                         "tensor_parallel",
                                         "tp"};
  if (tensor.size > 1) {
    object.RefuseUnlessOff(layouts,
                           "chooses how DeepSpeed cuts a model; here the model's family does, so "
                           "leave it out");
  } else {
    object.Ignore(layouts);
  }
  object.Ignore({"dtype", "vocab_parallel_ce_backend"});
  object.RefuseUnknown();
  if (program_size > 1 && object.Has("autotp_size") && tensor.size != program_size) {
    object.Fail("autotp_size", "is " + std::to_string(tensor.size) +
                                   ", but the program's tensor_group has " +
                                   std::to_string(program_size) + " ranks; leave it out");
  }
  if (program_size > 1) tensor.size = program_size;
  if (tensor.size == 1) tensor.sequence_parallel = false;
  return tensor;
}

nlohmann::ordered_json ShowTensorParallel(const TensorParallelConfig& tensor) {
  return ShowKeys(TensorParallelKeys(), tensor);
}

// The ranks of a node are consecutive, so only the groups of its first and last rank can extend to
// other nodes.
std::string PartsAcrossNodes(const TensorParallelConfig& tensor, int64_t first, int64_t count) {
  if (tensor.allow_across_nodes) return "";
  for (const int64_t edge : {first, first + count}) {
    if (edge % tensor.size == 0) continue;
    const int64_t begin = edge / tensor.size * tensor.size;
    return "is " + std::to_string(tensor.size) + ", but the ranks " + std::to_string(begin) +
           " to " + std::to_string(begin + tensor.size - 1) +
           " that divide each layer are on several nodes, which would exchange activations several "
           "times in each layer; choose a size that divides the ranks of each node, or set "
           "allow_across_nodes beside it";
  }
  return "";
}

}  // namespace dslaunch
