// Implements `dslaunch predict` for language models, which continue the user's texts.
#pragma once

#include <string>
#include <vector>

#include "trainer/config/recipe.h"
#include "trainer/program/prompts.h"
#include "trainer/program/text.h"
#include "trainer/train/training_model.h"

namespace dslaunch {

// Returns the codec of run.tokenizer, else of tokenizer.json in run.init_weights, else of bytes if
// the data's tokens are bytes. Throws kBadInput in all other cases.
TextCodec CodecOf(const Recipe& recipe);

// Returns the prompts in run.prompt or run.prompts. Throws kBadInput if a prompt is not valid
// (ReadPrompts).
std::vector<TextPrompt> PromptsOf(const Recipe& recipe, const TextCodec& codec);

// Generates a continuation of each prompt. Processes as many prompts at a time as a micro-batch has
// samples, or fewer if the memory for their keys and values is small. The results do not depend on
// the number of ranks. Rank 0 writes to run.predictions, or to stdout: for run.prompt its text with
// the continuation, for run.prompts a JSON line for each prompt, in the order of the prompts:
//   {"index": 0, "prompt": "To be", "text": " or not", "token_ids": [1, 2], "finish": "length"}
// "finish" is "length" after run.max_new_tokens tokens, else "stop". Collective. Throws kIo if the
// file cannot be written, and kUnavailable if the memory is too small for one text.
void ContinuePrompts(TrainingModel& training_model, const Recipe& recipe, const TextCodec& codec,
                     const std::vector<TextPrompt>& prompts, const ProcessGroup& group);

}  // namespace dslaunch
