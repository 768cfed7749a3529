#pragma once

namespace dslaunch {

extern const char kAccelerateModule[];  // the text of python/dslaunch/accelerate_env.py

}  // namespace dslaunch
