#include "agent/accelerators/accelerators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "agent/accelerators/node_accelerators.h"
#include "agent/accelerators/visible_devices.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::accelerators_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Names = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;

const AcceleratorRow& Cuda() { return RowOf(pb::DEVICE_CUDA); }
const AcceleratorRow& Rocm() { return RowOf(pb::DEVICE_ROCM); }

LookUpVariable In(const Variables& variables) {
  return [&variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

class AcceleratorsTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(dir_ / path).parent_path());
    dir_.Write(path, text + "\n");
  }
  void Link(const std::string& target, const std::string& path) {
    std::filesystem::create_directories(std::filesystem::path(dir_ / path).parent_path());
    std::filesystem::create_directory_symlink(dir_ / target, dir_ / path);
  }
  void WriteNvidia(const std::string& address, const std::string& minor) {
    Write("proc/driver/nvidia/gpus/" + address + "/information",
          "Model: \t\t NVIDIA H100\nGPU UUID: \t GPU-" + minor + "\nDevice Minor: \t " + minor);
  }
  // Writes a node of KFD and its PCI device, without device files.
  void WriteAmd(int node, int render_minor, int bus, int numa_node) {
    Write("sys/class/kfd/kfd/topology/nodes/" + std::to_string(node) + "/properties",
          "cpu_cores_count 0\nsimd_count 440\nlocation_id " + std::to_string(bus << 8) +
              "\ndomain 0\ndrm_render_minor " + std::to_string(render_minor) + "\nunique_id " +
              std::to_string(4096 + node) + "\ngfx_target_version 90010");
    char address[16];
    std::snprintf(address, sizeof address, "0000:%02x:00.0", static_cast<unsigned>(bus));
    Write("sys/bus/pci/devices/" + std::string(address) + "/numa_node", std::to_string(numa_node));
  }
  std::vector<Accelerator> Read(pb::Device device, const Variables& variables = {}) {
    return RowOf(device).read(dir_.path(), In(variables));
  }
  size_t CountSeen(pb::Device device, const Variables& variables) {
    const auto found = FindAccelerators(device, false, In(variables), false, dir_.path());
    EXPECT_TRUE(found.ok()) << found.error().message;
    return found.ok() ? found->visible.size() : 0;
  }
  TempDir dir_;
};

TEST(AcceleratorTable, HasRowForEveryKind) {
  for (int device = pb::DEVICE_CUDA; device < pb::Device_ARRAYSIZE; ++device)
    EXPECT_EQ(RowOf(static_cast<pb::Device>(device)).device, device);
  EXPECT_EQ(RowOf(pb::DEVICE_CPU).device, pb::DEVICE_CUDA);
  EXPECT_EQ(DeviceOption(pb::DEVICE_CPU), "cpu");
  EXPECT_EQ(DeviceOption(pb::DEVICE_HPU), "hpu");
}

TEST(AcceleratorTable, KnowsFilesOfDevices) {
  for (const char* path : {"/dev/nvidia0", "/dev/kfd", "/dev/dri/renderD128", "/dev/davinci7",
                           "/dev/accel/accel0", "/dev/hl0", "/dev/cambricon_dev3"})
    EXPECT_TRUE(IsAcceleratorFile(path)) << path;
  for (const char* path : {"/dev/nvidiactl", "/dev/null", "/dev/davinci_manager", "/dev/kfd0",
                           "/home/dev/nvidia0", "/dev/accel/accel_controlD0"})
    EXPECT_FALSE(IsAcceleratorFile(path)) << path;
}

// --- Devices of a machine ---

TEST_F(AcceleratorsTest, ListsNvidiaByPciAddress) {
  Write("proc/driver/nvidia/gpus/0000:db:00.0/information", "Model: X\nGPU UUID: \t GPU-b");
  Write("proc/driver/nvidia/gpus/0000:19:00.0/information", "GPU UUID:   GPU-a");
  Write("sys/bus/pci/devices/0000:db:00.0/numa_node", "1");
  Write("sys/bus/pci/devices/0000:19:00.0/numa_node", "-1");
  const std::vector<Accelerator> gpus = Read(pb::DEVICE_CUDA);
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[0].uuid, "GPU-a");
  EXPECT_EQ(gpus[0].numa_node, 0);
  EXPECT_EQ(gpus[1].uuid, "GPU-b");
  EXPECT_EQ(gpus[1].name, "X");
  EXPECT_EQ(gpus[1].numa_node, 1);
}

TEST_F(AcceleratorsTest, CountsNvidiaWithDeviceFiles) {
  WriteNvidia("0000:19:00.0", "2");
  WriteNvidia("0000:3b:00.0", "0");
  WriteNvidia("0000:db:00.0", "1");
  EXPECT_EQ(Read(pb::DEVICE_CUDA).size(), 3u);  // no GPU has been used yet, so /dev is incomplete
  for (const char* const other : {"nvidiactl", "nvidia-uvm", "nvidia", "nvidia1x"})
    Write("dev/" + std::string(other), "");
  EXPECT_EQ(Read(pb::DEVICE_CUDA).size(), 3u);
  Write("dev/nvidia2", "");
  Write("dev/nvidia1", "");
  EXPECT_EQ(CountSeen(pb::DEVICE_CUDA, {}), 2u);
  EXPECT_EQ(CountSeen(pb::DEVICE_CUDA, {{"CUDA_VISIBLE_DEVICES", "0"}}), 1u);
  EXPECT_EQ(CountSeen(pb::DEVICE_CUDA, {{"CUDA_VISIBLE_DEVICES", "0,1,2"}}), 2u);
  EXPECT_EQ(CountSeen(pb::DEVICE_CUDA, {{"CUDA_VISIBLE_DEVICES", ""}}), 0u);
  const std::vector<Accelerator> gpus = Read(pb::DEVICE_CUDA);
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[0].uuid, "GPU-2");
  EXPECT_EQ(gpus[1].uuid, "GPU-1");
}

TEST_F(AcceleratorsTest, CountsNvidiaFilesWithoutDriverList) {
  for (const char* const file : {"nvidia0", "nvidia10", "nvidiactl"})
    Write("dev/" + std::string(file), "");
  const std::vector<Accelerator> gpus = Read(pb::DEVICE_CUDA);
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[1].uuid, "");
}

TEST_F(AcceleratorsTest, ListsAmdByNodesOfKfd) {
  Write("sys/class/kfd/kfd/topology/nodes/0/properties", "cpu_cores_count 64\nsimd_count 0");
  WriteAmd(1, 128, 0xc1, 3);
  WriteAmd(2, 129, 0xc6, 2);
  WriteAmd(10, 130, 0xc9, -1);
  for (const char* file : {"dev/kfd", "dev/dri/renderD128", "dev/dri/renderD129"}) Write(file, "");
  Write("sys/class/drm/renderD129/device/mem_info_vram_total", "68702699520");
  const std::vector<Accelerator> gpus = Read(pb::DEVICE_ROCM);
  ASSERT_EQ(gpus.size(), 2u) << "renderD130 is not in this container";
  EXPECT_EQ(gpus[0].numa_node, 3);
  EXPECT_EQ(gpus[0].uuid, "GPU-0000000000001001");
  EXPECT_EQ(gpus[0].name, "AMD gfx90a");
  EXPECT_EQ(gpus[1].memory_bytes, 68702699520u);
  std::filesystem::remove(dir_ / "dev/kfd");
  EXPECT_THAT(Read(pb::DEVICE_ROCM), IsEmpty());
}

TEST_F(AcceleratorsTest, FindsNumaNodeOfAmdPartition) {
  WriteAmd(1, 128, 0xc1, 1);
  Write("sys/class/kfd/kfd/topology/nodes/2/properties",
        "simd_count 152\nlocation_id " + std::to_string((0xc1 << 8) | 3) +
            "\ndomain 268435456\ndrm_render_minor 129");
  for (const char* file : {"dev/kfd", "dev/dri/renderD128", "dev/dri/renderD129"}) Write(file, "");
  const std::vector<Accelerator> gpus = Read(pb::DEVICE_ROCM);
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[1].numa_node, 1);
}

TEST_F(AcceleratorsTest, CountsTilesOfIntelUnlessComposite) {
  const std::string pci = "sys/devices/pci0000:26/0000:29:00.0";
  for (const auto& [name, text] : std::map<std::string, std::string>{{"vendor", "0x8086"},
                                                                     {"device", "0x0bd5"},
                                                                     {"class", "0x038000"},
                                                                     {"numa_node", "1"},
                                                                     {"drm/renderD129/dev", ""}})
    Write(pci + "/" + name, text);
  Write("sys/class/drm/card1/gt/gt0/id", "0");
  Write("sys/class/drm/card1/gt/gt1/id", "1");
  Link(pci, "sys/class/drm/card1/device");
  const std::string integrated = "sys/devices/pci0000:00/0000:00:02.0";
  Write(integrated + "/vendor", "0x8086");
  Write(integrated + "/class", "0x030000");
  Write(integrated + "/drm/renderD128/dev", "");
  Write("sys/class/drm/card0/status", "");
  Link(integrated, "sys/class/drm/card0/device");
  Write("dev/dri/renderD128", "");
  EXPECT_THAT(Read(pb::DEVICE_XPU), IsEmpty());
  Write("dev/dri/renderD129", "");
  const std::vector<Accelerator> tiles = Read(pb::DEVICE_XPU);
  ASSERT_EQ(tiles.size(), 2u);
  EXPECT_EQ(tiles[0].numa_node, 1);
  EXPECT_EQ(tiles[0].name, "Intel GPU 0x0bd5");
  const Variables composite = {{"ZE_FLAT_DEVICE_HIERARCHY", "COMPOSITE"}};
  ASSERT_EQ(Read(pb::DEVICE_XPU, composite).size(), 1u);
  EXPECT_EQ(Read(pb::DEVICE_XPU, composite)[0].tiles, 2);
}

TEST_F(AcceleratorsTest, NumbersGaudiByModule) {
  const int modules[] = {3, 0, 1};
  for (int i = 0; i < 3; ++i) {
    const std::string device = "sys/class/accel/accel" + std::to_string(i) + "/device/";
    Write(device + "vendor", "0x1da3");
    Write(device + "numa_node", std::to_string(i % 2));
    Write(device + "module_id", std::to_string(modules[i]));
    if (i != 2) Write("dev/accel/accel" + std::to_string(i), "");
  }
  Write("sys/class/accel/accel3/device/vendor", "0x8086");  // the NPU of a laptop
  Write("dev/accel/accel3", "");
  const std::vector<Accelerator> hpus = Read(pb::DEVICE_HPU);
  ASSERT_EQ(hpus.size(), 2u);
  EXPECT_EQ(hpus[0].number, 0);
  EXPECT_EQ(hpus[0].numa_node, 1);
  EXPECT_EQ(hpus[1].number, 3);
  const Variables shown = {{"HABANA_VISIBLE_MODULES", "3"}};
  EXPECT_EQ(CountSeen(pb::DEVICE_HPU, shown), 1u);
  EXPECT_EQ(CountSeen(pb::DEVICE_HPU, {{"HABANA_VISIBLE_MODULES", "1"}}), 0u);
  EXPECT_EQ(NamesOfSlots(RowOf(pb::DEVICE_HPU), {}, In({}), hpus, 0, 2), (Names{"0", "3"}));
  EXPECT_EQ(NamesOfSlots(RowOf(pb::DEVICE_HPU), {1}, In({}), hpus, 0, 1), (Names{"3"}));
}

TEST_F(AcceleratorsTest, ReadsGaudiOfOldDriver) {
  Write("sys/class/habanalabs/hl0/device/vendor", "0x1da3");
  Write("dev/hl0", "");
  EXPECT_EQ(Read(pb::DEVICE_HPU).size(), 1u);
}

TEST_F(AcceleratorsTest, KnowsNumaNodeOfAscendIfAllShareOne) {
  for (const char* file : {"dev/davinci0", "dev/davinci4", "dev/davinci_manager"}) Write(file, "");
  for (const auto& [address, node] : {std::pair("0000:c1:00.0", "0"), {"0000:01:00.0", "0"}}) {
    const std::string device = std::string("sys/bus/pci/devices/") + address + "/";
    Write(device + "vendor", "0x19e5");
    Write(device + "class", "0x120000");
    Write(device + "numa_node", node);
  }
  const std::vector<Accelerator> npus = Read(pb::DEVICE_NPU);
  ASSERT_EQ(npus.size(), 2u);
  EXPECT_EQ(npus[1].numa_node, 0);
  Write("sys/bus/pci/devices/0000:01:00.0/numa_node", "1");
  const auto nodes = NumaNodesOf(RowOf(pb::DEVICE_NPU), {"1"}, Read(pb::DEVICE_NPU));
  ASSERT_FALSE(nodes.ok());
  EXPECT_THAT(nodes.error().message, HasSubstr("on which NUMA node NPU 1 is; use --bind_cores"));
}

TEST_F(AcceleratorsTest, ReadsCardsOfCambricon) {
  Write("dev/cambricon_dev1", "");
  Write("dev/cambricon_ctl", "");
  Write("proc/driver/cambricon/mlus/0000:1a:00.0/information",
        "Device name: MLU370-X8\nDevice inode path: /dev/cambricon_dev0");
  Write("proc/driver/cambricon/mlus/0000:9a:00.0/information",
        "Device name: MLU370-X8\nDevice inode path: /dev/cambricon_dev1");
  Write("sys/bus/pci/devices/0000:9a:00.0/numa_node", "1");
  const std::vector<Accelerator> cards = Read(pb::DEVICE_MLU);
  ASSERT_EQ(cards.size(), 1u);
  EXPECT_EQ(cards[0].name, "MLU370-X8");
  EXPECT_EQ(cards[0].numa_node, 1);
}

TEST_F(AcceleratorsTest, AutoTakesFirstKindWithVisibleDevice) {
  EXPECT_EQ(FindAccelerators(pb::DEVICE_AUTO, false, In({}), false, dir_.path())->device(),
            pb::DEVICE_CPU);
  Write("dev/nvidia0", "");
  Write("dev/davinci0", "");
  const Variables hidden = {{"CUDA_VISIBLE_DEVICES", ""}};
  const auto kind = [&](const Variables& variables, bool only_cuda) {
    return FindAccelerators(pb::DEVICE_AUTO, only_cuda, In(variables), false, dir_.path())
        ->device();
  };
  EXPECT_EQ(kind({}, false), pb::DEVICE_CUDA);
  EXPECT_EQ(kind(hidden, false), pb::DEVICE_NPU);
  EXPECT_EQ(kind(hidden, true), pb::DEVICE_CUDA);
}

// --- Variables ---

TEST(VisibleDevices, CountsLikeCuda) {
  const std::vector<Accelerator> four = {
      {"GPU-aaaa1", 0}, {"GPU-aaaa2", 0}, {"GPU-b", 1}, {"GPU-c", 1}};
  const auto count = [&](const char* value) {
    return SeeThrough(Cuda(), value, four, false).devices.size();
  };
  const std::pair<const char*, size_t> cases[] = {{"0,1", 2},
                                                  {" 2 , 3 ", 2},
                                                  {"0,-1,1", 1},
                                                  {"0,9,1", 1},
                                                  {"-1", 0},
                                                  {"", 0},
                                                  {",0", 0},
                                                  {"0,", 1},
                                                  {"x,0", 0},
                                                  {"0x,1", 2},
                                                  {"none", 0},
                                                  {"GPU-b,GPU-c", 2},
                                                  {"GPU-aaaa,GPU-b", 0},  // ambiguous
                                                  {"GPU-b,GPU-unknown,GPU-c", 1},
                                                  {"MIG-1,MIG-2", 1},
                                                  {"GPU-b,0", 2}};
  for (const auto& [value, expected] : cases) EXPECT_EQ(count(value), expected) << value;
  EXPECT_EQ(SeeThrough(Cuda(), "MIG-1,MIG-2", four, true).devices.size(), 2u);
}

TEST(VisibleDevices, IgnoresNamesWithoutDevices) {
  for (const char* value : {"GPU-b", "GPU-b,GPU-c", "MIG-1", "0,1", "0,0"})
    EXPECT_THAT(SeeThrough(Cuda(), value, {}, false).devices, IsEmpty()) << value;
  const std::vector<Accelerator> unnamed(2);  // device files without the list of the driver
  EXPECT_EQ(SeeThrough(Cuda(), "GPU-b,GPU-c", unnamed, false).devices.size(), 2u);
}

TEST(VisibleDevices, RejectsDeviceThatIsListedTwice) {
  const std::vector<Accelerator> two(2);
  for (const char* value : {"0,0", "1,0,1", "GPU-x,GPU-x", "0, 00"}) {
    const Variables variables = {{"CUDA_VISIBLE_DEVICES", value}};
    const auto refused = VisibleTo(Cuda(), two, In(variables), false);
    ASSERT_FALSE(refused.ok()) << value;
    EXPECT_THAT(refused.error().message, HasSubstr("twice, for which CUDA shows no GPU at all"));
  }
}

TEST(VisibleDevices, OtherRuntimesReadNumbersStrictly) {
  const std::vector<Accelerator> four(4);
  for (const AcceleratorRow& row : AcceleratorTable()) {
    if (row.device == pb::DEVICE_CUDA) continue;
    for (const auto& [value, count] :
         {std::pair("0,3", 2), {"0, 1", 1}, {"00", 0}, {"0,9,1", 1}, {"1x", 0}, {"MIG-1", 0}})
      EXPECT_EQ(SeeThrough(row, value, four, false).devices.size(), count)
          << row.option << " " << value;
    EXPECT_EQ(SeeThrough(row, "1,1", four, false).repeated, "1") << row.option;
  }
}

TEST(VisibleDevices, CountsTilesOfOneCardOnce) {
  const AcceleratorRow& xpu = RowOf(pb::DEVICE_XPU);
  std::vector<Accelerator> cards(2);
  EXPECT_THAT(SeeThrough(xpu, "0.0", cards, false).devices, IsEmpty()) << "tiles are devices";
  for (Accelerator& card : cards) card.tiles = 2;
  EXPECT_EQ(SeeThrough(xpu, "0.0,0.1,1.1", cards, false).devices.size(), 2u);
  EXPECT_EQ(SeeThrough(xpu, "0.0,0.2,1.1", cards, false).devices.size(), 1u);
  EXPECT_EQ(SeeThrough(xpu, "0.0,0.0", cards, false).repeated, "0.0");
  EXPECT_EQ(VisibleTo(xpu, cards, In({{"ZE_AFFINITY_MASK", ""}}), false)->size(), 2u);
}

TEST(VisibleDevices, HipNumbersWhatRocrShows) {
  std::vector<Accelerator> eight(8);
  for (int i = 0; i < 8; ++i) eight[static_cast<size_t>(i)].numa_node = i;
  const auto nodes = [&](const Variables& variables) {
    std::vector<int> numbers;
    for (const Accelerator& one : *VisibleTo(Rocm(), eight, In(variables), false))
      numbers.push_back(*one.numa_node);
    return numbers;
  };
  EXPECT_THAT(nodes({{"ROCR_VISIBLE_DEVICES", "6,7"}}), ElementsAre(6, 7));
  EXPECT_THAT(nodes({{"ROCR_VISIBLE_DEVICES", "6,7"}, {"HIP_VISIBLE_DEVICES", "1"}}),
              ElementsAre(7));
  EXPECT_THAT(nodes({{"ROCR_VISIBLE_DEVICES", "6,7"}, {"CUDA_VISIBLE_DEVICES", "6"}}), IsEmpty());
  EXPECT_THAT(nodes({{"HIP_VISIBLE_DEVICES", "2"}, {"CUDA_VISIBLE_DEVICES", "3"}}), ElementsAre(2));
}

TEST(VisibleDevices, AllottedDevicesAreNotAppliedTwice) {
  const std::vector<Accelerator> eight(8);
  const Variables slurm = {
      {"ROCR_VISIBLE_DEVICES", "4,5"}, {"CUDA_VISIBLE_DEVICES", "4,5"}, {"SLURM_STEP_GPUS", "4,5"}};
  EXPECT_EQ(VisibleTo(Rocm(), eight, In(slurm), false)->size(), 2u);
  EXPECT_EQ(OwnVisible(Rocm(), In(slurm)), nullptr);
  EXPECT_EQ(NamesOfSlots(Rocm(), {}, In(slurm), {}, 0, 2), (Names{"0", "1"}));
}

TEST(VisibleDevices, NumbersOfFilterCountAllottedDevices) {
  const std::vector<Accelerator> eight(8);
  const Variables slurm = {{"CUDA_VISIBLE_DEVICES", "4,5,6"}, {"SLURM_JOB_GPUS", "4,5,6"}};
  EXPECT_EQ(NumberedDevices(Cuda(), eight, In(slurm))->size(), 3u);
  EXPECT_EQ(NamesOfSlots(Cuda(), {0, 2}, In(slurm), {}, 0, 2), (Names{"4", "6"}));
  const Variables own = {{"CUDA_VISIBLE_DEVICES", "4,5,6"}};
  EXPECT_EQ(NumberedDevices(Cuda(), eight, In(own))->size(), 8u);
  EXPECT_EQ(NamesOfSlots(Cuda(), {0, 2}, In(own), {}, 0, 2), (Names{"0", "2"}));
}

TEST(VisibleDevices, NamesChosenThenVisibleThenAll) {
  const auto names = [](std::vector<int> chosen, const char* value, size_t first) {
    Variables variables;
    if (value != nullptr) variables["CUDA_VISIBLE_DEVICES"] = value;
    return NamesOfSlots(Cuda(), chosen, In(variables), {}, first, 2);
  };
  EXPECT_EQ(names({}, nullptr, 2), (Names{"2", "3"}));
  EXPECT_EQ(names({}, "7, GPU-x ,9", 0), (Names{"7", "GPU-x"}));
  EXPECT_EQ(names({}, "7", 0), (Names{"7"}));
  EXPECT_EQ(names({}, "", 0), (Names{"", ""})) << "none, for every slot";
  EXPECT_EQ(names({}, "-1", 0), (Names{"-1", "-1"}));
  EXPECT_EQ(names({1, 6}, "7,8", 0), (Names{"1", "6"}));
  EXPECT_EQ(names({}, "4,5,6", 2), (Names{"6"}));
}

TEST(VisibleDevices, FindsNumaNodeByNumberOrUuidPrefix) {
  const std::vector<Accelerator> gpus = {{"GPU-aaaa", 0}, {"GPU-abbb", 1}};
  EXPECT_THAT(*NumaNodesOf(Cuda(), {"1", "0"}, gpus), ElementsAre(1, 0));
  EXPECT_THAT(*NumaNodesOf(Cuda(), {"GPU-ab"}, gpus), ElementsAre(1));
  for (const char* device : {"2", "MIG-x", "GPU-", "", "1x"}) {
    const auto nodes = NumaNodesOf(Cuda(), {device}, gpus);
    ASSERT_FALSE(nodes.ok()) << device;
    EXPECT_THAT(nodes.error().message, HasSubstr("CUDA_VISIBLE_DEVICES"));
  }
}

TEST(VisibleDevices, NamesVariablesThatLimitDevices) {
  const Variables variables = {{"ROCR_VISIBLE_DEVICES", "4,5"}, {"CUDA_VISIBLE_DEVICES", "0"}};
  EXPECT_EQ(LimitsOn(Rocm(), In(variables)), "ROCR_VISIBLE_DEVICES=4,5 CUDA_VISIBLE_DEVICES=0");
  EXPECT_EQ(LimitsOn(RowOf(pb::DEVICE_NPU), In(variables)), "");
}

}  // namespace
}  // namespace dslaunch::accelerators_test
