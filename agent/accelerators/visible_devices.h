// Determines from environment variables which devices a program sees. Reads no files. Some vendors
// have several levels of such variables: the values of a level count the devices that the previous
// level shows (AcceleratorRow::levels).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/accelerators/accelerators.h"
#include "base/error.h"

namespace dslaunch {

// Returns the elements of a variable's value that the vendor's runtime accepts: numbers and names
// (GPU-..., MIG-..., or 0.1 for a tile). The first invalid element ends the list.
std::vector<std::string> ListVisibleDevices(const AcceleratorRow& row, std::string_view value);

struct SeenDevices {
  std::vector<Accelerator> devices = {};  // devices, in the order in which the program numbers them
  std::string repeated = {};              // device that is listed twice; empty if none is
};

// Returns the devices of `all` that a variable's value shows. The first element that names no
// device ends the list. If a device is listed twice, shows no device and sets `repeated`. A program
// sees only one MIG device. With `each_alone`, each rank sees one device of the list
// (--virtual_local_rank), so all MIG devices count.
SeenDevices SeeThrough(const AcceleratorRow& row, std::string_view value,
                       const std::vector<Accelerator>& all, bool each_alone);

// Returns the value of the last level's variable that the user or the batch system has set; nullptr
// if no variable of that level is set. In the allocation of a batch system, a value equal to the
// previous level's value counts as unset: Slurm gives all variables the same numbers, which the
// runtime would apply twice.
const char* OwnVisible(const AcceleratorRow& row, const LookUpVariable& getenv);

// Returns whether a batch system has chosen the devices of this environment: a step or job of Slurm
// with GPUs, or a job of Flux.
bool IsAllotted(const LookUpVariable& getenv);

// Returns the devices to which the numbers of a job's filter (--include node:0,2) refer. These are
// the devices that the levels before the last level show and, in an allocation, that the batch
// system assigned. A batch system without a variable for this kind assigned the device files that
// it lists (SLURM_STEP_GPUS). Fails with kUsage if a device is listed twice.
Result<std::vector<Accelerator>> NumberedDevices(const AcceleratorRow& row,
                                                 const std::vector<Accelerator>& all,
                                                 const LookUpVariable& getenv);

// Returns the devices of `all` that a program sees after all levels. `each_alone` is whether each
// rank sees only one of them (SeeThrough). Fails with kUsage if a variable lists a device twice.
Result<std::vector<Accelerator>> VisibleTo(const AcceleratorRow& row,
                                           const std::vector<Accelerator>& all,
                                           const LookUpVariable& getenv, bool each_alone);

// Returns at most `slots` names, one for each slot's device, for the variables of the last level.
// If `chosen` is not empty, names the devices with these numbers. Otherwise returns the elements of
// OwnVisible() or, if that is unset, the numbers of all devices, in both cases from index `first`.
// `numbered` is the result of NumberedDevices(), or empty if unknown. Returns fewer names if there
// are fewer devices.
std::vector<std::string> NamesOfSlots(const AcceleratorRow& row, const std::vector<int>& chosen,
                                      const LookUpVariable& getenv,
                                      const std::vector<Accelerator>& numbered, size_t first,
                                      size_t slots);

// Returns the NUMA nodes of the devices in `names`, a result of NamesOfSlots(). `shown` contains
// the devices that the levels before the last level show. Fails with kUsage if a device or its NUMA
// node is unknown.
Result<std::vector<int>> NumaNodesOf(const AcceleratorRow& row,
                                     const std::vector<std::string>& names,
                                     const std::vector<Accelerator>& shown);

// Returns the devices of `all` that the levels before the last level show; `all` if no variable of
// these levels is set. Fails with kUsage if a variable lists a device twice.
Result<std::vector<Accelerator>> ShownToLastLevel(const AcceleratorRow& row,
                                                  const std::vector<Accelerator>& all,
                                                  const LookUpVariable& getenv);

// Returns "NAME=value" for each set variable that limits the visible devices, separated by spaces,
// for messages. Empty if no such variable is set.
std::string LimitsOn(const AcceleratorRow& row, const LookUpVariable& getenv);

}  // namespace dslaunch
