// Orders the actions of AgentCore, for NodeAgent and for the simulator.
#pragma once

#include <deque>
#include <utility>
#include <variant>

#include "agent/core/agent_action.h"

namespace dslaunch {

// A first-in, first-out queue of actions: actions that follow from an action are carried out after
// all earlier actions. Used by one thread.
class AgentActionQueue {
 public:
  // Adds `actions`, calls `carry_out` with each action until the queue is empty, and returns true.
  // If called from `carry_out`, only adds the actions and returns false; the outer call then
  // carries them out.
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
