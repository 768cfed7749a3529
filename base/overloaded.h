// A visitor of std::visit that is made of lambdas, one for each alternative.
#pragma once

namespace dslaunch {

template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};

}  // namespace dslaunch
