#include "trainer/engine/engine_batch.h"

#include "trainer/engine/engine_parts.h"

namespace dslaunch {

EngineBatch::EngineBatch(EngineCore& core) : parts_(*core.parts_) {}

void EngineBatch::Begin(bool trains) { parts_.passes.BeginBatch(trains); }

ExchangeWatch EngineBatch::Watch(bool forward) const { return parts_.guard.Watch(forward); }

at::Tensor EngineBatch::Root(const at::Tensor& loss) { return parts_.passes.Root(loss); }

void EngineBatch::BeforeBackward(bool last) {
  parts_.memory.BeginBackward();
  parts_.step->states().BeforeBackward(last);
}

void EngineBatch::AfterBackward() { parts_.step->states().AfterBackward(); }

void EngineBatch::End() { parts_.step->states().End(); }

void EngineBatch::Step() { parts_.passes.StepBatch(); }

}  // namespace dslaunch
