// The engine of a pipeline, whatever its layers came from.
#pragma once

#include "dslaunch/pipeline.h"
#include "trainer/config/engine_config.h"
#include "trainer/pipeline/stage.h"

namespace dslaunch {

// `parts` are this rank's stage of config.pipeline, for the place of this rank in the mesh.
// `loss` as PipelineModule has it. `group` must outlive the result. Collective; throws as
// EngineCore does.
PipelineEngine MakePipelineEngine(StageParts parts, PipelineLoss loss, const EngineConfig& config,
                                  const ProcessGroup& group);

// The stage of config.pipeline that this rank trains. Throws TrainError kBadInput where the stages
// do not divide the ranks.
int StageOfThisRank(const EngineConfig& config, const ProcessGroup& group);

}  // namespace dslaunch
