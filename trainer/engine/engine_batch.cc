#include "trainer/engine/engine_batch.h"

#include "trainer/engine/engine_impl.h"

namespace dslaunch {

void EngineBatch::Begin(bool trains) { core_.impl_->BeginBatch(trains); }
at::Tensor EngineBatch::Root(const at::Tensor& loss) { return core_.impl_->Root(loss); }
void EngineBatch::BeforeBackward(bool last) { core_.impl_->BeforeBackward(last); }
void EngineBatch::AfterBackward() { core_.impl_->AfterBackward(); }
void EngineBatch::End() { core_.impl_->EndBatch(); }
void EngineBatch::Step() { core_.impl_->StepBatch(); }

}  // namespace dslaunch
