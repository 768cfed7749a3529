// A recipe checked before any rank has it, by the front end: all of the content that needs no node
// to be judged.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dslaunch {

struct RecipeProblem {
  std::string source;  // the engine's file, where the key stands in it; else empty
  std::string key;     // its path in there: "engine.fp16.loss_scale"; empty: the whole
  std::string said;    // one sentence, the key and the way out in it
};

// What the trainer would refuse, which is ParseRecipe's; nullopt: nothing. `ranks` is the world
// size; 0 where it is not known yet, and then the batch sizes are not compared with it.
std::optional<RecipeProblem> CheckRecipe(const std::string& json_text, int64_t ranks);

}  // namespace dslaunch
