#pragma once

namespace dslaunch {

enum class DeviceKind { kAuto, kCuda, kCpu };  // run.device

}  // namespace dslaunch
