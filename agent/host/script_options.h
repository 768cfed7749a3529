// What a Python script's source says about the options it takes. Pure.
#pragma once

#include <string>
#include <string_view>

namespace dslaunch {

// "--local_rank" or "--local-rank", as the source spells it where it first names such an option: as
// an argument, a string by itself, of a call, as in add_argument("--local_rank", ...). Empty: it
// does nowhere. Comments and all other strings do not count, nor do lists: a list of arguments is
// for another program.
std::string LocalRankOption(std::string_view source);

}  // namespace dslaunch
