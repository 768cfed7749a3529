// Decides which devices a program sees, by the variables of its environment. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/accelerators/accelerators.h"
#include "base/error.h"

namespace dslaunch {

// Returns the elements of a variable's value as the vendor's runtime reads it: numbers and names
// (GPU-..., MIG-..., 0.1 for a tile) up to the first other element.
std::vector<std::string> ListVisibleDevices(const AcceleratorRow& row, std::string_view value);

struct SeenDevices {
  std::vector<Accelerator> devices = {};  // in the program's order
  std::string repeated = {};              // a device that is listed twice; else empty
};

// Returns the devices of `all` that a variable's value shows. The first element without a device
// ends the list. A device that is listed twice leaves none, and a program sees only one MIG device.
// With `each_alone`, each rank sees one device of the list (--virtual_local_rank), so all MIG
// devices count.
SeenDevices SeeThrough(const AcceleratorRow& row, std::string_view value,
                       const std::vector<Accelerator>& all, bool each_alone);

// Returns the value of the last level that the user or the batch system has set; nullptr: none. In
// a batch system's allocation this excludes a copy of the level before: Slurm gives all variables
// the same numbers, which the runtime would apply twice.
const char* OwnVisible(const AcceleratorRow& row, const LookUpVariable& getenv);

// Whether a batch system has chosen the devices of this environment: a step of Slurm's with GPUs,
// or a job of Flux's.
bool IsAllotted(const LookUpVariable& getenv);

// Returns the devices that numbers of a job's filter (--include node:0,2) count: those that the
// levels before the last show, and of these what the batch system gave. Of a kind that the batch
// system has no variable for, these are the device files that it lists (SLURM_STEP_GPUS). Fails
// with kUsage for a device that is listed twice.
Result<std::vector<Accelerator>> NumberedDevices(const AcceleratorRow& row,
                                                 const std::vector<Accelerator>& all,
                                                 const LookUpVariable& getenv);

// Returns the devices that a program sees. Fails as NumberedDevices() does.
Result<std::vector<Accelerator>> VisibleTo(const AcceleratorRow& row,
                                           const std::vector<Accelerator>& all,
                                           const LookUpVariable& getenv, bool each_alone);

// Returns the elements for variables of the last level that name the slots' devices: of `chosen`
// if any are, else of OwnVisible(), else of all; of these two the `first`th and those after it.
// `numbered`: see NumberedDevices(); empty if it is not known. Fewer than `slots` if not so many
// are named.
std::vector<std::string> NamesOfSlots(const AcceleratorRow& row, const std::vector<int>& chosen,
                                      const LookUpVariable& getenv,
                                      const std::vector<Accelerator>& numbered, size_t first,
                                      size_t slots);

// Returns the NUMA nodes of devices that are named as by NamesOfSlots(); `shown`: the devices that
// the levels before the last show. Fails with kUsage for an unknown device or node.
Result<std::vector<int>> NumaNodesOf(const AcceleratorRow& row,
                                     const std::vector<std::string>& names,
                                     const std::vector<Accelerator>& shown);

// Returns the devices that the levels before the last show. Fails as NumberedDevices() does.
Result<std::vector<Accelerator>> ShownToLastLevel(const AcceleratorRow& row,
                                                  const std::vector<Accelerator>& all,
                                                  const LookUpVariable& getenv);

// Returns "NAME=value" of the variables that limit the visible devices, for messages.
std::string LimitsOn(const AcceleratorRow& row, const LookUpVariable& getenv);

}  // namespace dslaunch
