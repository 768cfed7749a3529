// Creates a pipeline engine from the layers of a stage, regardless of how they were built.
#pragma once

#include <memory>

#include "dslaunch/pipeline.h"
#include "trainer/config/engine_config.h"
#include "trainer/mesh/mesh_groups.h"
#include "trainer/pipeline/stage.h"

namespace dslaunch {

// Returns an engine for `parts`, the stage of this rank (ranks->place().stage). Stores the cut of
// `parts` in `ranks`. `loss` is null to use CrossEntropy of the first output and the first target.
// Collective. Throws the exceptions of EngineCore's constructor.
PipelineEngine MakePipelineEngine(StageParts parts, PipelineLoss loss, const EngineConfig& config,
                                  std::shared_ptr<MeshGroups> ranks);

}  // namespace dslaunch
