#include "trainer/engine/engine_batch.h"

#include "trainer/engine/engine_impl.h"

namespace dslaunch {

void EngineBatch::Begin(bool trains) {
  if (trains) {
    core_.impl_->CheckFrozen();
    if (core_.impl_->gives_up_) core_.impl_->GiveUp();  // the batch before has thrown
    core_.impl_->StartStepOver();
  }
  core_.impl_->states().Begin(trains ? Pass::kSync : Pass::kInference);
  if (trains) core_.impl_->MeterBegin();
}

ExchangeWatch EngineBatch::Watch(bool forward) const { return core_.impl_->guard_.Watch(forward); }

at::Tensor EngineBatch::Root(const at::Tensor& loss) {
  core_.impl_->CheckLoss(loss);
  return core_.impl_->ScaledLoss(loss, core_.impl_->config_.batch.accumulation_steps);
}

void EngineBatch::BeforeBackward(bool last) {
  core_.impl_->MeterBackward();
  core_.impl_->states().BeforeBackward(last);
}

void EngineBatch::AfterBackward() { core_.impl_->states().AfterBackward(); }

void EngineBatch::End() { core_.impl_->states().End(); }

void EngineBatch::Step() {
  core_.impl_->EndStep();
  core_.impl_->micro_steps_ += core_.impl_->config_.batch.accumulation_steps;
  core_.impl_->gives_up_ = false;
}

}  // namespace dslaunch
