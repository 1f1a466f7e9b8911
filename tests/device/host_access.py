#!/usr/bin/env python3
"""Where the library touches elements as the host (data<T>(), bytes(), data() of a storage, is_cpu()), apart from what is the
CPU's: only the files below may, for the reason beside them. Checks docs/contributing/add-a-device.md, too: its blocks are those of the
null device, and that has at most 250 lines.

    host_access.py ROOT
"""
import pathlib, re, sys

root = pathlib.Path(sys.argv[1])
LAYERS = ("core", "ops", "optim", "autograd", "nn", "net", "actors", "rref", "parallel", "script", "tools", "troupe")
OF_THE_HOST = ("ops/cpu/", "core/memory/", "core/tensor/")  # the CPU's kernels; storages; the accessors themselves
MAY = {
    "actors/worker/reports.cpp": "tells the host's memory from that of devices, and touches none",
    "autograd/distributed/context.cpp": "a loss on the CPU is shown to who watches",
    "autograd/distributed/optim/module_actor.cpp": "copies that leave for another worker are the host's",
    "autograd/gradcheck.cpp": "differences are taken of copies on the host",
    "autograd/opcheck.cpp": "differences are taken of samples on the host",
    "core/graph/copy_on_write.cpp": "gives addresses to the backend",
    "core/graph/dlpack.cpp": "other libraries get, and give, the host's memory; what is elsewhere is refused",
    "core/graph/exposed.cpp": "a pointer that a program keeps is the host's",
    "core/graph/inplace_write.h": "write_data(), a user's loop on the host",
    "net/": "messages are host memory",
    "nn/init.cpp": "values are drawn on the host",
    "ops/embedding_bag.cpp": "offsets decide the shape of the results",
    "ops/gradient_rules.cpp": "sample inputs",
    "ops/indexing.cpp": "numbers of rows; rows that the CPU has are copied as bytes",
    "ops/order.cpp": "places in an order are found on the host",
    "ops/random.cpp": "values are drawn on the host",
    "ops/weighted_loss.cpp": "probabilities are looked at where that costs no wait",
    "parallel/data/compressed_gradients.cpp": "what is packed for the wire is on the host",
    "parallel/server/": "servers are on the CPU",
    "parallel/tensor/whole_model.cpp": "tells tensors that are one from others, and touches none",
    "troupe/checkpoint/owned_pieces.cpp": "files of checkpoints are read to the host",
    "troupe/checkpoint/snapshot_room.cpp": "tells what a GPU holds from what the host does, and touches none",
    "troupe/onnx/": "files are written from copies on the host",
    "troupe/ways/tensor_way.cpp": "says which way tensors of the CPU go, and touches none",
    "troupe/ways/ways_of_worker.cpp": "the same",
}
ACCESS = re.compile(r"\bdata<\w+>\(\)|[.>]bytes\(\)|storage(\(\))?->data\(\)|is_cpu\(\)")
wrong, used = [], set()
for layer in LAYERS:
    for file in sorted((root / layer).rglob("*")):
        path = file.relative_to(root).as_posix()
        if file.suffix not in (".h", ".cpp") or path.startswith(OF_THE_HOST) or "/cuda/" in path:
            continue
        for number, line in enumerate(file.read_text().splitlines(), 1):
            if not ACCESS.search(line):
                continue
            reason = next((key for key in MAY if path.startswith(key)), None)
            used.add(reason)
            if reason is None:
                wrong.append(f"{path}:{number}: {line.strip()}")
wrong += [f"{key} touches no elements any more: take it off the list" for key in MAY if key not in used]

device = (root / "tests/support/null_device.cpp").read_text() + (root / "tests/support/null_device.h").read_text()
for block in re.findall(r"```cpp\n(.*?)```", (root / "docs/contributing/add-a-device.md").read_text(), re.S):
    wrong += [f"docs/contributing/add-a-device.md: not in the null device: {line}" for line in block.splitlines() if line not in device]
if (lines := device.count("\n")) > 250:
    wrong.append(f"the null device has {lines} lines; the limit is 250")
print("\n".join(wrong) or f"host access: nowhere but in {len(MAY)} known places; the null device has {lines} lines")
sys.exit(bool(wrong))
