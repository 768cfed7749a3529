// The order in which the actions of AgentCore are carried out, by NodeAgent and by the simulator.
#pragma once

#include <deque>
#include <utility>
#include <variant>

#include "agent/node/agent_action.h"

namespace dslaunch {

// First in, first out: what follows from an action comes after all that was wanted before it. One
// thread.
class AgentActionQueue {
 public:
  // Calls `carry_out` with each action, until none is left. False, at once, in a call that comes
  // from `carry_out` itself: the outer call goes on with these actions.
  template <class CarryOne>
  bool CarryOut(AgentActions actions, CarryOne carry_out) {
    for (AgentAction& action : actions) actions_.push_back(std::move(action));
    if (std::exchange(carrying_out_, true)) return false;
    while (!actions_.empty()) {
      AgentAction action = std::move(actions_.front());
      actions_.pop_front();
      std::visit(carry_out, action);
    }
    carrying_out_ = false;
    return true;
  }

 private:
  std::deque<AgentAction> actions_;
  bool carrying_out_ = false;
};

}  // namespace dslaunch
