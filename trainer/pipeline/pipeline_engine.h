// Makes the engine of a pipeline from the parts of a stage, however they were built.
#pragma once

#include "dslaunch/pipeline.h"
#include "trainer/config/engine_config.h"
#include "trainer/pipeline/stage.h"

namespace dslaunch {

// `parts` are the stage of this rank (StageOfThisRank). `loss`: see PipelineModule. `group` must
// outlive the result. Collective. Throws like EngineCore.
PipelineEngine MakePipelineEngine(StageParts parts, PipelineLoss loss, const EngineConfig& config,
                                  const ProcessGroup& group);

// Returns the stage that this rank trains. Throws TrainError kBadInput if the stages do not divide
// the ranks.
int StageOfThisRank(const EngineConfig& config, const ProcessGroup& group);

}  // namespace dslaunch
