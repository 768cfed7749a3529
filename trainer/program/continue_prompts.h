// Implements dslaunch predict for language models, which continues texts.
#pragma once

#include <string>
#include <vector>

#include "trainer/config/recipe.h"
#include "trainer/program/prompts.h"
#include "trainer/program/text.h"
#include "trainer/train/training_model.h"

namespace dslaunch {

// Returns the codec of run.tokenizer, else of a tokenizer.json in run.init_weights, else bytes if
// the data's tokens are bytes. Throws kBadInput if there is none.
TextCodec CodecOf(const Recipe& recipe);

// Reads run.prompt or run.prompts. Throws the errors of ReadPrompts.
std::vector<TextPrompt> PromptsOf(const Recipe& recipe, const TextCodec& codec);

// Continues the prompts, as many together as a micro-batch has samples, or as the memory for their
// keys and values allows. The results do not depend on the number of ranks. Rank 0 writes to
// run.predictions, or to stdout: the text of run.prompt with its continuation, or for run.prompts
// JSON lines in their order:
//   {"index": 0, "prompt": "To be", "text": " or not", "token_ids": [1, 2], "finish": "length"}
// "finish" is "length" after run.max_new_tokens, else "stop". Collective. Throws kIo, and
// kUnavailable if there is no memory for one text.
void ContinuePrompts(TrainingModel& training_model, const Recipe& recipe, const TextCodec& codec,
                     const std::vector<TextPrompt>& prompts, const ProcessGroup& group);

}  // namespace dslaunch
