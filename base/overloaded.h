// Makes a visitor for std::visit from one lambda per alternative.
#pragma once

namespace dslaunch {

template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};

}  // namespace dslaunch
