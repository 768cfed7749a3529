"""Simulates machines with accelerators of each vendor: their files below /sys and /dev, in a private mount namespace.

The trees are written from public descriptions of the drivers' files and from listings of such machines. Each has only
the files that programs read to find devices. Two NUMA nodes share this machine's CPUs. Needs root.

  machine = FakeMachine("rocm", folder)
  subprocess.run([*machine.enter, "dslaunch", "--dry_run", "env"])
"""

import os
import pathlib
import shlex
import shutil
import subprocess

KINDS = ("cuda", "rocm", "xpu", "npu", "hpu", "mlu")
# Variables by which programs of each kind select devices; dslaunch sets them.
VARIABLES = {"cuda": ["CUDA_VISIBLE_DEVICES"], "rocm": ["HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"],
             "xpu": ["ZE_AFFINITY_MASK"], "npu": ["ASCEND_RT_VISIBLE_DEVICES"], "hpu": ["HABANA_VISIBLE_MODULES"],
             "mlu": ["MLU_VISIBLE_DEVICES"]}
# Kinds for which the kernel shows the NUMA node of each device. For the other kinds it shows only a node that all
# devices share.
SHOWS_NUMA_NODES = ("rocm", "xpu", "hpu")
NOUNS = {"npu": "NPU", "hpu": "HPU", "mlu": "MLU"}


def noun(kind):
    return NOUNS.get(kind, "GPU")


def why_not():
    """Returns the reason why fake machines cannot be made on this machine; None if they can."""
    if os.geteuid() != 0:
        return "fake machines need root, to mount"
    missing = [name for name in ("unshare", "mount") if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed"
    probe = subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/sys"], capture_output=True, text=True)
    return f"no mount namespace: {probe.stderr.strip()}" if probe.returncode else None


class FakeMachine:
    """A machine with four devices: 0 and 1 on NUMA node 0, 2 and 3 on node 1, or all on `numa_node`.

    `files`: numbers of the devices whose device files exist, as in a container that was given only these."""

    def __init__(self, kind, folder, files=(0, 1, 2, 3), numa_node=None):
        self.kind, self.files, self.numa_node = kind, set(files), numa_node
        if numa_node is None and kind not in SHOWS_NUMA_NODES:
            self.numa_node = 1
        self.folder = pathlib.Path(folder)
        for name in ("sys/bus/pci/devices", "sys/class", "sys/devices", "dev"):
            (self.folder / name).mkdir(parents=True)
        self._cpus()
        for number in range(4):
            getattr(self, kind)(number)
        self.script = self.folder / "mount.sh"
        self.script.write_text(self._mounts())
        self.enter = ["unshare", "--mount", "--propagation", "private", "sh", "-c", '. "$0"; exec "$@"', str(self.script)]

    def _write(self, path, *lines):
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{line}\n" for line in lines))

    def _link(self, target, path):
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.symlink_to("/" + target)

    def _device_file(self, number, *paths):
        if number in self.files:
            for path in paths:
                self._write(f"dev/{path}")

    def node_of(self, number):
        return number // 2 if self.numa_node is None else self.numa_node

    def _pci(self, number, address, vendor, device, pci_class):
        """Writes the files of a PCI device; returns its folder."""
        folder = f"sys/devices/pci-test/{address}"
        self._write(f"{folder}/vendor", vendor)
        self._write(f"{folder}/device", device)
        self._write(f"{folder}/class", pci_class)
        self._write(f"{folder}/numa_node", self.node_of(number))
        self._link(folder, f"sys/bus/pci/devices/{address}")
        return folder

    def _cpus(self):
        cpus = sorted(os.sched_getaffinity(0))
        self.cpus = [cpus[:len(cpus) // 2], cpus[len(cpus) // 2:]]
        self._write("sys/devices/system/node/online", "0-1")
        for node, own in enumerate(self.cpus):
            self._write(f"sys/devices/system/node/node{node}/cpulist", ",".join(map(str, own)))

    # Simulates an HGX machine. The driver's list is in /proc, where no file that the kernel lacks can be mounted. So
    # this machine shows only device files, as in a sandbox.
    def cuda(self, number):
        self._pci(number, f"0000:{(0x19, 0x3b, 0x9b, 0xdb)[number]:02x}:00.0", "0x10de", "0x2330", "0x030200")
        self._device_file(number, f"nvidia{number}", "nvidiactl", "nvidia-uvm")

    # Simulates half of a node with four MI250X, each of which is two devices.
    def rocm(self, number):
        nodes = "sys/class/kfd/kfd/topology/nodes"
        bus = (0xc1, 0xc6, 0xc9, 0xce)[number]
        render = 128 + number
        device = self._pci(number, f"0000:{bus:02x}:00.0", "0x1002", "0x7408", "0x038000")
        self._write(f"{device}/mem_info_vram_total", 68702699520)
        self._write(f"{device}/mem_info_vram_used", 10903552)
        self._write(f"{device}/product_name", "AMD INSTINCT MI250 (MCM) OAM AC MBA")
        self._link(device, f"sys/class/drm/renderD{render}/device")
        for cpus in range(2):
            self._write(f"{nodes}/{cpus}/gpu_id", 0)
            self._write(f"{nodes}/{cpus}/properties", "cpu_cores_count 64", "simd_count 0", "mem_banks_count 1")
        self._write(f"{nodes}/{number + 2}/gpu_id", 51110 + number)
        self._write(f"{nodes}/{number + 2}/properties", "cpu_cores_count 0", "simd_count 440", "mem_banks_count 1",
                    "gfx_target_version 90010", "vendor_id 4098", "device_id 29704", f"location_id {bus << 8}", "domain 0",
                    f"drm_render_minor {render}", f"unique_id {0x1f2e3d4c5b6a7900 + number}", "num_xcc 1")
        self._device_file(number, "kfd", f"dri/renderD{render}", f"dri/card{number}")

    # Simulates two Data Center GPU Max with two tiles each, beside the graphics of the machine's management controller.
    def xpu(self, number):
        card, tile = divmod(number, 2)
        if tile == 0:
            address = f"0000:{(0x29, 0x9a)[card]:02x}:00.0"
            device = self._pci(number, address, "0x8086", "0x0bd5", "0x038000")
            self._write(f"{device}/drm/renderD{129 + card}/dev", f"226:{129 + card}")
            self._link(device, f"sys/class/drm/card{card + 1}/device")
            if card == 0:
                console = self._pci(0, "0000:03:00.0", "0x1a03", "0x2000", "0x030000")
                self._link(console, "sys/class/drm/card0/device")
        self._write(f"sys/class/drm/card{card + 1}/gt/gt{tile}/id", tile)
        self._device_file(number, f"dri/renderD{129 + card}", f"dri/card{card + 1}")

    # Simulates half of an Atlas 800T A2, with its order of PCI addresses.
    def npu(self, number):
        self._pci(number, f"0000:{(0xc1, 0x01, 0xc2, 0x02)[number]:02x}:00.0", "0x19e5", "0xd802", "0x120000")
        self._device_file(number, f"davinci{number}", "davinci_manager", "devmm_svm", "hisi_hdc")

    # Simulates half of a Gaudi 2 machine. The module numbers are not in the order of the devices.
    def hpu(self, number):
        device = self._pci(number, f"0000:{(0x33, 0x34, 0x9a, 0x9b)[number]:02x}:00.0", "0x1da3", "0x1020", "0x120000")
        self._write(f"{device}/module_id", self.module_of(number))
        self._write(f"{device}/device_type", "GAUDI2")
        self._link(device, f"sys/class/accel/accel{number}/device")
        self._device_file(number, f"accel/accel{number}", f"accel/accel_controlD{number}")

    # Simulates half of a machine with eight MLU370.
    def mlu(self, number):
        self._pci(number, f"0000:{(0x1a, 0x1d, 0x9a, 0x9d)[number]:02x}:00.0", "0xcabc", "0x0370", "0x120000")
        self._device_file(number, f"cambricon_dev{number}", "cambricon_ctl", f"cambricon_ipcm{number}")

    @staticmethod
    def module_of(number):
        return number ^ 1

    def names(self, numbers):
        """Returns the value of the kind's variable for the devices at the positions `numbers`."""
        if self.kind != "hpu":
            return ",".join(map(str, numbers))
        modules = sorted(self.module_of(file) for file in self.files)
        return ",".join(str(modules[number]) for number in numbers)

    def numa_node_of(self, number):
        """Returns the NUMA node of the device at the position `number`."""
        if self.kind == "hpu":
            modules = sorted(self.module_of(file) for file in self.files)
            return self.node_of(self.module_of(modules[number]))
        return self.node_of(sorted(self.files)[number])

    def _mounts(self):
        """Returns a script that mounts the tree over this machine's /sys and /dev, but keeps files unrelated to
        devices."""
        return f"""set -e
tree={shlex.quote(str(self.folder))}
real=$tree/real
mkdir -p $real/sys $real/dev
mount --rbind /sys $real/sys
mount --rbind /dev $real/dev
add() {{  # puts $1 at $2, where nothing is yet
  if [ -e "$2" ] || [ -L "$2" ]; then return; fi
  if [ -L "$1" ]; then
    cp -P "$1" "$2"
  elif [ -d "$1" ]; then
    mkdir "$2"
    mount --rbind "$1" "$2"
  elif [ -e "$1" ]; then
    : > "$2"
    mount --bind "$1" "$2"
  fi
}}
merge() {{  # makes $1 a folder of the tree's entries and the real ones
  mkdir -p $1
  for entry in $tree$1/* $real$1/*; do add "$entry" "$1/${{entry##*/}}"; done
}}
mount -t tmpfs -o mode=755 none /sys
mkdir -p /sys/bus/pci
add $tree/sys/bus/pci/devices /sys/bus/pci/devices
merge /sys/class
mkdir -p /sys/devices
merge /sys/devices/system
merge /sys/devices
merge /sys
mount -t tmpfs -o mode=755 none /dev
cp -r $tree/dev/. /dev/
for name in null zero full random urandom tty console fuse ptmx pts shm fd stdin stdout stderr tty0 tty1 tty2 tty3; do
  add $real/dev/$name /dev/$name
done
set +e
"""
