"""Requests to NVIDIA's drivers, as watch_requests wrote them down: their names, and what they do to memory.

Numbers and layouts are read from NVIDIA open-gpu-kernel-modules (580.142, 595.45.04), not from the recorder's tables, so that
both are compared and not one with itself: nvos.h, nv_escape.h, nv-ioctl-numbers.h, uvm_ioctl.h, g_allclasses.h,
resource_list.h, rmapi_deprecated_vidheapctrl.c.
"""

from pathlib import Path

# Requests of the resource manager: number, name, {size of the structure: where its status lies}.
RM = {
    0x27: ("NV_ESC_RM_ALLOC_MEMORY", {56: 40}), 0x28: ("NV_ESC_RM_ALLOC_OBJECT", {20: 16}),
    0x29: ("NV_ESC_RM_FREE", {16: 12}), 0x2A: ("NV_ESC_RM_CONTROL", {32: 28}), 0x2B: ("NV_ESC_RM_ALLOC", {48: 40, 32: 28}),
    0x34: ("NV_ESC_RM_DUP_OBJECT", {28: 24}), 0x35: ("NV_ESC_RM_SHARE", {24: 20}), 0x39: ("NV_ESC_RM_I2C_ACCESS", {}),
    0x41: ("NV_ESC_RM_IDLE_CHANNELS", {56: 48}), 0x4A: ("NV_ESC_RM_VID_HEAP_CONTROL", {184: 20}),
    0x4D: ("NV_ESC_RM_ACCESS_REGISTRY", {72: 64}), 0x4E: ("NV_ESC_RM_MAP_MEMORY", {56: 40}),
    0x4F: ("NV_ESC_RM_UNMAP_MEMORY", {32: 24}), 0x52: ("NV_ESC_RM_GET_EVENT_DATA", {16: 12}),
    0x54: ("NV_ESC_RM_ALLOC_CONTEXT_DMA2", {56: 48}), 0x57: ("NV_ESC_RM_MAP_MEMORY_DMA", {64: 56}),
    0x58: ("NV_ESC_RM_UNMAP_MEMORY_DMA", {48: 40}), 0x59: ("NV_ESC_RM_BIND_CONTEXT_DMA", {16: 12}),
    0x5C: ("NV_ESC_RM_EXPORT_OBJECT_TO_FD", {}), 0x5D: ("NV_ESC_RM_IMPORT_OBJECT_FROM_FD", {}),
    0x5E: ("NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO", {40: 32}), 0x5F: ("NV_ESC_RM_LOCKLESS_DIAGNOSTIC", {}),
    200: ("NV_ESC_CARD_INFO", {}), 201: ("NV_ESC_REGISTER_FD", {}), 206: ("NV_ESC_ALLOC_OS_EVENT", {16: 12}),
    207: ("NV_ESC_FREE_OS_EVENT", {16: 12}), 209: ("NV_ESC_STATUS_CODE", {}), 210: ("NV_ESC_CHECK_VERSION_STR", {}),
    211: ("NV_ESC_IOCTL_XFER_CMD", {}), 212: ("NV_ESC_ATTACH_GPUS_TO_FD", {}), 213: ("NV_ESC_QUERY_DEVICE_INTR", {}),
    214: ("NV_ESC_SYS_PARAMS", {}), 215: ("NV_ESC_NUMA_INFO", {}), 216: ("NV_ESC_SET_NUMA_STATUS", {}),
    217: ("NV_ESC_EXPORT_TO_DMABUF_FD", {2608: 2600}), 218: ("NV_ESC_WAIT_OPEN_COMPLETE", {}),
}
CONTROLS = {
    0x3D05: "OS_UNIX_EXPORT_OBJECT_TO_FD", 0x3D06: "OS_UNIX_IMPORT_OBJECT_FROM_FD", 0x3D08: "OS_UNIX_GET_EXPORT_OBJECT_INFO",
    0x3D0A: "OS_UNIX_CREATE_EXPORT_OBJECT_FD", 0x3D0B: "OS_UNIX_EXPORT_OBJECTS_TO_FD", 0x3D0C: "OS_UNIX_IMPORT_OBJECTS_FROM_FD",
    0x20801301: "FB_GET_INFO", 0x20801303: "FB_GET_INFO_V2", 0xE00101: "EXPORT_MEM", 0xE00102: "IMPORT_MEM",
    0xF80103: "FABRIC ATTACH_MEM", 0xF80104: "FABRIC DETACH_MEM", 0xFD0102: "MULTICAST ATTACH_MEM", 0xFD0105: "MULTICAST DETACH_MEM",
}
IMPORTS = {0x3D06, 0x3D0C, 0xE00102}

# Requests of unified memory: number, name, where the status lies in 580. Later drivers differ in UVM_SINCE.
UVM = {
    int(number): (name, int(at)) for number, name, at in (line.split() for line in """
    1 RESERVE_VA 16;2 RELEASE_VA 16;23 CREATE_RANGE_GROUP 8;24 DESTROY_RANGE_GROUP 8;25 REGISTER_GPU_VASPACE 28
    26 UNREGISTER_GPU_VASPACE 16;27 REGISTER_CHANNEL 48;28 UNREGISTER_CHANNEL 24;29 ENABLE_PEER_ACCESS 32
    30 DISABLE_PEER_ACCESS 32;31 SET_RANGE_GROUP 24;33 MAP_EXTERNAL_ALLOCATION 9260;34 FREE 16;35 MEM_MAP 16;37 REGISTER_GPU 36
    38 UNREGISTER_GPU 16;39 PAGEABLE_MEM_ACCESS 4;40 PREVENT_MIGRATION_RANGE_GROUPS 264;41 ALLOW_MIGRATION_RANGE_GROUPS 264
    42 SET_PREFERRED_LOCATION 36;43 UNSET_PREFERRED_LOCATION 16;44 ENABLE_READ_DUPLICATION 16;45 DISABLE_READ_DUPLICATION 16
    46 SET_ACCESSED_BY 32;47 UNSET_ACCESSED_BY 32;51 MIGRATE 72;53 MIGRATE_RANGE_GROUP 24;54 ENABLE_SYSTEM_WIDE_ATOMICS 16
    55 DISABLE_SYSTEM_WIDE_ATOMICS 16;56 TOOLS_INIT_EVENT_TRACKER 48;57 TOOLS_SET_NOTIFICATION_THRESHOLD 4
    58 TOOLS_EVENT_QUEUE_ENABLE_EVENTS 8;59 TOOLS_EVENT_QUEUE_DISABLE_EVENTS 8;60 TOOLS_ENABLE_COUNTERS 8
    61 TOOLS_DISABLE_COUNTERS 8;62 TOOLS_READ_PROCESS_MEMORY 32;63 TOOLS_WRITE_PROCESS_MEMORY 32
    64 TOOLS_GET_PROCESSOR_UUID_TABLE 8;65 MAP_DYNAMIC_PARALLELISM_REGION 32;66 UNMAP_EXTERNAL 32;67 TOOLS_FLUSH_EVENTS 0
    68 ALLOC_SEMAPHORE_POOL 9240;69 CLEAN_UP_ZOMBIE_RESOURCES 0;70 PAGEABLE_MEM_ACCESS_ON_GPU 20;71 POPULATE_PAGEABLE 20
    72 VALIDATE_VA_RANGE 16;73 CREATE_EXTERNAL_RANGE 16;74 MAP_EXTERNAL_SPARSE 32;75 MM_INITIALIZE 4
    76 TOOLS_INIT_EVENT_TRACKER_V2 48;77 TOOLS_GET_PROCESSOR_UUID_TABLE_V2 8;78 ALLOC_DEVICE_P2P 52
    79 CLEAR_ALL_ACCESS_COUNTERS 0;80 DISCARD 24;2047 IS_8_SUPPORTED 4;805306369 INITIALIZE 8;805306370 DEINITIALIZE -1
    """.replace("\n", ";").split(";") if line.strip())
}
UVM_SINCE = (590, 44, 1)
UVM_LATER = {34: 8, 28: 8}

# Classes that a user's client is likely to ask for.
CLASSES = {
    int(number, 16): name for number, name in (line.split() for line in """
    0 NV01_ROOT;1 NV01_ROOT_NON_PRIV;2 NV01_CONTEXT_DMA;4 NV01_TIMER;5 NV01_EVENT;79 NV01_EVENT_OS_EVENT;20 NV0020_GPU_MANAGEMENT
    30 NV01_NULL;3e NV01_MEMORY_SYSTEM;3f NV01_MEMORY_LOCAL_PRIVILEGED;40 NV01_MEMORY_LOCAL_USER;41 NV01_ROOT_CLIENT
    42 NV_MEMORY_EXTENDED_USER;50 NV_CE_UTILS;60 NV0060_SYNC_GPU_BOOST;70 NV01_MEMORY_VIRTUAL;71 NV01_MEMORY_SYSTEM_OS_DESCRIPTOR
    73 NV04_DISPLAY_COMMON;76 NV01_MEMORY_FRAMEBUFFER_CONSOLE;7d NV04_SOFTWARE_TEST;80 NV01_DEVICE_0;81 NV01_MEMORY_LIST_SYSTEM
    82 NV01_MEMORY_LIST_FBMEM;83 NV01_MEMORY_LIST_OBJECT;b1 NV01_MEMORY_HW_RESOURCES;c2 NV01_MEMORY_LOCAL_PHYSICAL
    c3 NV01_MEMORY_SYNCPOINT;da NV_SEMAPHORE_SURFACE;db NV40_DEBUG_BUFFER;de RM_USER_SHARED_DATA;e0 NV_MEMORY_EXPORT
    f1 NV_IMEX_SESSION;f3 NV01_MEMORY_FLA;f8 NV_MEMORY_FABRIC;f9 NV_MEMORY_FABRIC_IMPORT_V2;fb NV_MEMORY_FABRIC_IMPORTED_REF
    fc FABRIC_VASPACE_A;fd NV_MEMORY_MULTICAST_FABRIC;fe NV_MEMORY_MAPPER;2080 NV20_SUBDEVICE_0;208f NV20_SUBDEVICE_DIAG
    503b NV50_P2P;503c NV50_THIRD_PARTY_P2P;50a0 NV50_MEMORY_VIRTUAL;83de GT200_DEBUGGER;9067 FERMI_CONTEXT_SHARE_A
    900e MPS_COMPUTE;902d FERMI_TWOD_A;9074 GF100_TIMED_SEMAPHORE_SW;90cc GF100_PROFILER;90cd NV_EVENT_BUFFER
    90ce NV01_MEMORY_DEVICELESS;90e6 GF100_SUBDEVICE_MASTER;90f1 FERMI_VASPACE_A;a06c KEPLER_CHANNEL_GROUP_A
    a140 KEPLER_INLINE_TO_MEMORY_B;c365 ACCESS_COUNTER_NOTIFY_BUFFER;c369 MMU_FAULT_BUFFER;c461 TURING_USERMODE_A
    c56f AMPERE_CHANNEL_GPFIFO_A;c574 UVM_CHANNEL_RETAINER;c661 HOPPER_USERMODE_A;c86f HOPPER_CHANNEL_GPFIFO_A
    c8b5 HOPPER_DMA_COPY_A;c96f BLACKWELL_CHANNEL_GPFIFO_A;cb33 NV_CONFIDENTIAL_COMPUTE;cb97 HOPPER_A;cba2 HOPPER_SEC2_WORK_LAUNCH_A
    cbc0 HOPPER_COMPUTE_A;cbca NV_COUNTER_COLLECTION_UNIT
    """.replace("\n", ";").split(";") if line.strip())
}
# How classes have to do with memory: what they are, and where the size lies in their parameters ("+1": a limit).
ROLES = {
    0x3E: ("memory", 64), 0x40: ("memory", 64), 0x42: ("memory", 64), 0x90CE: ("memory", 64), 0x71: ("pages", "24+1"),
    0x50A0: ("addresses", 64), 0x70: ("addresses", "8+1"), 0xF8: ("addresses", 8), 0xFD: ("addresses", 48),
    0xB1: ("other memory", None), 0xF3: ("other memory", None), 0x81: ("other memory", 112), 0x82: ("other memory", 112),
    0x83: ("other memory", 112), 0xC2: ("other memory", 0), 0xF9: ("other memory", None), 0xFB: ("other memory", None),
}
# What the recorder says that it records (nvidia.rs, uvm.rs): the only thing here that is known from it.
RECORDED_RM = {0x27, 0x29, 0x2B, 0x34, 0x4A, 0xD3}
RECORDED_CLASSES = {0x3E, 0x40, 0x71, 0x50A0}
RECORDED_UVM = {33, 34, 42, 51, 53, 65, 66, 68, 73, 78}
VIRTUAL_FLAG = 0x80000
NO_MEMORY, GENERIC = 0x51, 0xFFFF


class Bytes:
    """A structure before and after."""

    def __init__(self, line):
        self.size = line.get("size", 0)
        self.before = bytes.fromhex(line.get("before", ""))
        after = line.get("after", "")
        self.after = self.before if after == "same" else bytes.fromhex(after)

    def number(self, at, width=4, after=False):
        piece = (self.after if after else self.before)[at:at + width]
        return int.from_bytes(piece, "little") if at >= 0 and len(piece) == width else None

    def new(self, at, width=4):
        return self.number(at, width, after=True)


class Request:
    """One line of the log: the request that was meant, also if another one carried it."""

    def __init__(self, line, later):
        self.seq, self.pid, self.tid = line["seq"], line["pid"], line["tid"]
        # The recorder's own threads are called so: they read the machine, and try how large a block can be had after a failure.
        self.is_recorders = line.get("name", "").startswith("gpuoom")
        self.node, self.result, self.errno = line["node"], line["return"], line["errno"]
        self.is_uvm = Path(self.node).name.startswith("nvidia-uvm")
        self.is_rm = line["letter"] == "F" and not self.is_uvm
        self.carried = "inner" in line
        inner = line.get("inner", line)
        self.number = line["request"] if self.is_uvm else inner["number"]
        self.payload, self.nested = Bytes(inner), Bytes(line.get("nested", {}))
        self.name, self.status_at = f"not known ({self.number:#x})", None
        if self.is_uvm and self.number in UVM:
            name, at = UVM[self.number]
            self.name, self.status_at = f"UVM_{name}", UVM_LATER.get(self.number, at) if later else at
        elif self.is_rm and self.number in RM:
            self.name, places = RM[self.number]
            self.status_at = places.get(self.payload.size)
        # 512 and 516 are the kernel's own: it makes the call again.
        self.interrupted = self.errno in (4, 11, 512, 513, 514, 516)

    @property
    def status(self):
        """The driver's status; as the recorder has it where the system call itself failed; None where nobody says it."""
        if self.result is None:
            return None
        if self.result != 0:
            return NO_MEMORY if self.errno == 12 else GENERIC
        return self.payload.new(self.status_at) if self.status_at is not None else None

    @property
    def class_number(self):
        return self.payload.number(12) if self.is_rm and self.number in (0x2B, 0x27) else None


def key(root, handle):
    return (root or 0) << 32 | (handle or 0)


class Step:
    """What a request does to memory. `role` None: nothing that is to be in a trace."""

    def __init__(self, request):
        self.request, self.role, self.event, self.kind = request, None, None, None
        self.odd_place = False
        self.address = self.size = None
        self.numbers = []
        if request.is_uvm:
            self.unified(request.number, request.payload)
        elif request.is_rm:
            self.managed(request.number, request.payload, request.nested)
        if request.status not in (0, None) and self.event != "free":
            self.address = self.address if request.is_uvm else None

    def takes(self, role, event, kind, address, size, numbers):
        self.role, self.event, self.kind, self.address, self.size, self.numbers = role, event, kind, address, size, numbers

    def managed(self, number, payload, nested):
        root, parent, class_number = payload.number(0), payload.number(4), payload.number(12)
        good = self.request.status == 0
        if number == 0x29:
            self.takes("gives", "free", None, key(root, payload.number(8)), 0, [parent])
        elif number == 0x34:
            source = key(class_number, payload.number(16))
            self.takes("duplicate", "import", "imported", key(root, payload.new(8)), 0, [source, parent])
        elif number == 0x4A:
            self.heap(payload, root, parent, good)
        elif number == 0x2A and payload.number(8) in IMPORTS:
            self.takes("other memory", "import", "imported", None, None, [])
        elif number in (0x2B, 0x27):
            self.object(number, payload, nested, root, parent, class_number, good)

    def object(self, number, payload, nested, root, parent, class_number, good):
        role, size_at = ROLES.get(class_number, (None, None))
        if role is None:
            return
        if number == 0x27:  # NVOS02_PARAMETERS: a limit for all classes
            size, attributes, flags = (payload.number(32, 8) or 0) + 1, None, 0
        else:
            at, _, more = str(size_at).partition("+")
            size = None if size_at is None else nested.number(int(at), 8, after=good and not more)
            size = size if size is None else size + int(more or 0)
            attributes, flags = nested.number(24, after=good), nested.number(8) or 0
        address = key(payload.new(0), payload.new(8))
        event, kind = {"pages": ("pin", "registered"), "addresses": ("reserve", "reserved")}.get(role, ("alloc", "host-pinned"))
        if role == "memory" and class_number == 0x40:
            kind = "device"
        if role == "memory" and flags & VIRTUAL_FLAG:
            role, event, kind = "addresses", "reserve", "reserved"
        # The driver refuses video memory that should lie elsewhere, and system memory that should lie there.
        self.odd_place = role == "memory" and attributes is not None and (attributes >> 25 & 3 == 0) != (class_number == 0x40)
        kind = None if self.odd_place and class_number == 0x40 else kind
        self.takes(role, event, kind, address, size, [parent, class_number])

    def heap(self, payload, root, parent, good):
        function = payload.number(8)
        if function == 3:
            self.takes("gives", "free", None, key(root, payload.number(44)), 0, [parent])
        elif function in (2, 6, 14):
            flags, attributes = payload.number(52), payload.number(64 if function == 6 else 56)
            size = payload.number(80 if function == 14 else 88, 8, after=good)
            # rmapi_deprecated_vidheapctrl.c: what need not lie on the card becomes system memory.
            role, event, kind, class_number = "memory", "alloc", "device", 0x40
            if (flags or 0) & VIRTUAL_FLAG:
                role, event, kind, class_number = "addresses", "reserve", "reserved", 0x50A0
            elif (attributes or 0) >> 25 & 3:
                kind, class_number = "host-pinned", 0x3E
            self.takes(role, event, kind, key(payload.new(0), payload.new(44)), size, [parent, class_number])
        elif function == 27:
            size = (payload.number(72, 8) or 0) + 1
            self.takes("pages", "pin", "registered", key(payload.new(0), payload.new(40)), size, [parent, 0x71])
        elif function == 19:
            self.takes("other memory", "alloc", None, None, payload.number(64, 8), [parent])

    def unified(self, number, payload):
        base, length = payload.number(0, 8), payload.number(8, 8)
        if number in (65, 73):
            self.takes("addresses", "reserve", "reserved", base, length, [])
        elif number == 34:
            self.takes("gives", "free", None, base, 0, [])
        elif number == 66:
            self.takes("gives", "unmap", "device", base, length, [])
        elif number == 68:
            self.takes("memory", "alloc", "host-pinned", base, length, [])
        elif number in (33, 78):
            at = 9252 if number == 33 else 44
            source = key(payload.number(at), payload.number(at + 4))
            self.takes("mapping", "map", "device", base, length, [source, payload.number(16, 8)])
        elif number in (42, 51):
            self.takes("advice", "map", "managed", base, length, [0 if number == 42 else 1, payload.number(16, 8)])
        elif number == 53:
            self.takes("advice", "map", "managed", 0, 0, [1, payload.number(8, 8)])

    @property
    def is_odd(self):
        """Whether no driver could have read it: a form that it has not, or a pointer to nowhere."""
        request = self.request
        unreadable = len(request.payload.before) < request.payload.size or (self.role in ("memory", "pages", "addresses")
            and request.number == 0x2B and request.is_rm and len(request.nested.before) < 32)
        return request.status != 0 and (request.status_at is None or unreadable)

    @property
    def is_recorded(self):
        """Whether the recorder says that it records this: the rest it leaves out on purpose, or does not know."""
        request = self.request
        if request.is_uvm:
            return request.number in RECORDED_UVM
        if request.class_number is not None:
            return request.number in RECORDED_RM and request.class_number in RECORDED_CLASSES
        return request.number in RECORDED_RM and not (request.number == 0x4A and request.payload.number(8) in (19, 27))

    def text(self):
        request, parts = self.request, [f"#{self.request.seq} thread {self.request.tid}", self.request.name]
        if request.class_number is not None:
            parts.append(CLASSES.get(request.class_number, f"class {request.class_number:#x}"))
        parts.append(f"{self.role}, {self.event}" + (f" of {self.kind}" if self.kind else ""))
        parts.append("address " + ("not known" if self.address is None else f"{self.address:#x}"))
        if self.event not in ("free", "import"):
            parts.append("size " + ("not known" if self.size is None else f"{self.size}"))
        parts.append("status " + ("not known" if request.status is None else f"{request.status:#x}"))
        return ", ".join(parts) + (f", errno {request.errno}" if request.errno else "")
