// dslaunch(1), made from the option table. Pure.
#pragma once

#include <string>

namespace dslaunch {

std::string ManPage();

}  // namespace dslaunch
