// dslaunch(1), generated from the option table. Pure.
#pragma once

#include <string>

namespace dslaunch {

std::string ManPage();

}  // namespace dslaunch
