#include "trainer/deferred_init/replay_plan.h"

#include <algorithm>

namespace dslaunch {

ReplayPlan PlanReplay(const std::vector<DeferredStep>& steps, size_t values,
                      const std::vector<size_t>& wanted) {
  ReplayPlan plan{std::vector<bool>(steps.size()), std::vector<std::optional<size_t>>(values)};
  std::vector<bool> needed(values);
  for (const size_t value : wanted) needed[value] = true;
  for (size_t i = steps.size(); i-- > 0;) {
    const DeferredStep& step = steps[i];
    plan.runs[i] = step.draws || std::any_of(step.writes.begin(), step.writes.end(),
                                             [&](size_t value) { return needed[value]; });
    if (!plan.runs[i]) continue;
    for (const size_t value : step.reads) needed[value] = true;
    for (const auto* touched : {&step.reads, &step.writes}) {
      for (const size_t value : *touched) {
        if (!plan.last_step[value]) plan.last_step[value] = i;
      }
    }
  }
  return plan;
}

}  // namespace dslaunch
