// What each key of a recipe and of an engine configuration means, in words for docs/reference.
#pragma once

#include <map>
#include <string>

namespace dslaunch {

// By the key's path; keys that several sections share are under "*." and their last part.
const std::map<std::string, std::string>& KeyMeanings();

}  // namespace dslaunch
