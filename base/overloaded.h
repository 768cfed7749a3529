// Makes a visitor for std::visit from lambdas, one for each alternative.
#pragma once

namespace dslaunch {

template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};

}  // namespace dslaunch
