// The help of dslaunch, train and predict, made from the option table. Pure.
#pragma once

#include <string>

namespace dslaunch {

std::string HelpText();     // the options that are needed most
std::string HelpAllText();  // all of them, and the names of what is refused
std::string TrainHelpText();
std::string PredictHelpText();

}  // namespace dslaunch
