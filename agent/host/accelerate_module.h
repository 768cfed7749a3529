#pragma once

namespace dslaunch {

extern const char kAccelerateModule[];  // text of python/dslaunch/accelerate_env.py

}  // namespace dslaunch
