#include "collective/nccl/cuda/nccl_launcher.h"

#include <algorithm>
#include <cstring>

#include "core/base/call_frame.h"
#include "core/base/error.h"
#include "core/cuda/runtime.h"

namespace troupe::internal::collective {

namespace {

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return ncclFloat32;
    case DType::float64:
      return ncclFloat64;
    case DType::int64:
      return ncclInt64;
    case DType::boolean:
    case DType::uint8:
      return ncclUint8;
    case DType::bfloat16:
      return ncclBfloat16;
    case DType::float16:
      return ncclFloat16;
    case DType::int32:
      return ncclInt32;
  }
  throw_invalid("[nccl] no type of NCCL for " + std::string(name(dtype)));
}

ncclRedOp_t reduction_called(const std::string& name) {
  if (name == "mean") return ncclAvg;
  if (name == "min") return ncclMin;
  if (name == "max") return ncclMax;
  return ncclSum;
}

CallFrame frame_of_nccl() {
  CallFrame f;
  f.device_stream = kLibraryStream;
  return f;
}

size_t count(const Tensor& t) { return t.defined() ? static_cast<size_t>(t.numel()) : 0; }
// Not address(), which makes the stream wait for others.
std::byte* data(const Tensor& t) {
  if (!t.defined()) return nullptr;
  return t.storage()->data() + static_cast<size_t>(t.storage_offset()) * item_size(t.dtype());
}

}  // namespace

NcclLauncher::NcclLauncher(const Nccl& nccl, WorkerDevice here, Device device)
    : nccl_(nccl), here_(here), device_(device), stream_(cuda::stream_of(device, kLibraryStream)) {}

NcclLauncher::~NcclLauncher() {
  std::set<Members> all;
  for (const auto& [members, c] : communicators_) all.insert(members);
  end(all, "the worker stops");
  cudaSetDevice(device_.index);
  nccl_.GroupStart();
  for (const Ending& e : ending_)
    if (!e.is_aborted) nccl_.CommAbort(e.communicator.comm);
  nccl_.GroupEnd();
  cudaStreamSynchronize(stream_);
}

int NcclLauncher::rank_of(const Members& members) const {
  return static_cast<int>(std::ranges::find(members, here_) - members.begin());
}

std::string NcclLauncher::text_of(ncclResult_t result) const {
  const char* last = nccl_.GetLastError(nullptr);
  return "NCCL says: " + std::string(nccl_.GetErrorString(result)) +
         (last && *last ? ", " + std::string(last) : std::string());
}

void NcclLauncher::expect(const DeviceOperation& operation, DeviceWork work,
                          std::unique_ptr<DeviceInputs> inputs) {
  expected_.emplace(operation.id, Expected{operation, std::move(work), std::move(inputs)});
}

void NcclLauncher::forget(DeviceOperationId id) {
  expected_.erase(id);
  ids_.erase(id);
}

void NcclLauncher::launch(DeviceOperationId id) {
  auto found = expected_.extract(id);
  if (found.empty()) return;
  queue_.push_back({std::move(found.mapped().operation), std::move(found.mapped().work)});
}

// ---- what goes on

std::vector<LauncherEvent> NcclLauncher::poll(bool& moved) {
  const CallFrameScope frame(frame_of_nccl());
  cuda::use(device_);
  moved = look_for_inputs();
  moved |= look_for_ends();
  moved |= look_for_errors();
  moved |= go_on_with_head();
  return std::exchange(events_, {});
}

bool NcclLauncher::look_for_inputs() {
  bool moved = false;
  for (auto& [id, e] : expected_) {
    if (!e.inputs || !e.inputs->are_there()) continue;
    e.inputs.reset();
    events_.push_back({LauncherEvent::ready, e.operation, ""});
    moved = true;
  }
  return moved;
}

bool NcclLauncher::look_for_ends() {
  bool moved = false;
  for (auto r = running_.begin(); r != running_.end();) {
    if (cudaEventQuery(r->ended) != cudaSuccess) {
      cudaGetLastError();
      ++r;
      continue;
    }
    events_.push_back({LauncherEvent::ended, r->operation, ""});
    cudaEventDestroy(r->ended);
    r = running_.erase(r);
    moved = true;
  }
  return moved;
}

bool NcclLauncher::look_for_errors() {
  for (const Running& r : running_) {
    const auto c = communicators_.find(r.operation.members);
    ncclResult_t state = ncclSuccess;
    if (c == communicators_.end() || !c->second.ready ||
        nccl_.CommGetAsyncError(c->second.comm, &state) != ncclSuccess || state == ncclSuccess ||
        state == ncclInProgress)
      continue;
    end({Members(r.operation.members)}, text_of(state), LauncherEvent::library_failed);
    return true;
  }
  return false;
}

bool NcclLauncher::go_on_with_head() {
  if (!ending_.empty() && (queue_.empty() || queue_.front().state == Item::waiting)) return free_ending();
  if (queue_.empty()) return false;
  Item& head = queue_.front();
  const Members members = head.operation.members;
  Step step;
  if (head.state == Item::waiting)
    step = begin(head);
  else
    step = go_on(head, communicators_.at(members));
  if (step.result == ncclSuccess || step.result == ncclInProgress) return step.moved;
  end({members}, text_of(step.result), LauncherEvent::library_failed);
  return true;
}

NcclLauncher::Step NcclLauncher::begin(Item& item) {
  const auto c = communicators_.find(item.operation.members);
  if (c == communicators_.end()) {
    const ncclResult_t r = make_communicator(item);
    return {r, item.state != Item::waiting};
  }
  if (ids_.contains(item.operation.id)) return {ncclInvalidUsage, true};  // another member's is broken
  item.state = Item::issuing;
  return {issue(item, c->second.comm), true};
}

// The first member makes the id when the operation is at the head of its queue: one that is made and not used
// by all leaves a thread and a port behind.
ncclResult_t NcclLauncher::make_communicator(Item& item) {
  const Members& members = item.operation.members;
  ncclUniqueId id{};
  if (members.front() == here_) {
    if (const ncclResult_t r = nccl_.GetUniqueId(&id); r != ncclSuccess) return r;
    events_.push_back({LauncherEvent::made_id, item.operation, std::string(id.internal, sizeof id.internal)});
  } else {
    const auto came = ids_.extract(item.operation.id);
    if (came.empty()) return ncclInProgress;
    if (came.mapped().size() != sizeof id.internal) return ncclInvalidArgument;
    std::memcpy(id.internal, came.mapped().data(), sizeof id.internal);
  }
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  Communicator made;
  const ncclResult_t r =
      nccl_.CommInitRankConfig(&made.comm, static_cast<int>(members.size()), id, rank_of(members), &config);
  if (r != ncclSuccess && r != ncclInProgress) return r;
  communicators_[members] = made;
  item.state = Item::making;
  return r;
}

NcclLauncher::Step NcclLauncher::go_on(Item& item, Communicator& communicator) {
  ncclResult_t state = ncclInProgress;
  ncclResult_t r = nccl_.CommGetAsyncError(communicator.comm, &state);
  if (r == ncclSuccess) r = state;
  if (r != ncclSuccess) return {r, false};
  if (item.state == Item::making) {
    communicator.ready = true;
    item.state = Item::waiting;
    return {ncclSuccess, true};
  }
  if (item.issued < item.work.steps.size()) return {issue(item, communicator.comm), true};
  // All of it is on the stream now.
  Running running{std::move(item.operation), std::move(item.work), nullptr};
  queue_.pop_front();
  if (cudaEventCreateWithFlags(&running.ended, cudaEventDisableTiming) != cudaSuccess ||
      cudaEventRecord(running.ended, stream_) != cudaSuccess)
    r = ncclUnhandledCudaError;
  running_.push_back(std::move(running));
  return {r, true};
}

// The next steps, in a group.
ncclResult_t NcclLauncher::issue(Item& item, ncclComm_t comm) {
  const std::vector<DeviceStep>& steps = item.work.steps;
  if (steps.empty()) return ncclSuccess;
  const size_t most = std::min(steps.size(), item.issued + kMostSteps);
  size_t end = item.issued;
  while (end < most && steps[end].group == steps[item.issued].group) ++end;
  ncclResult_t r = nccl_.GroupStart();
  for (; r == ncclSuccess && item.issued < end; ++item.issued)
    r = call(steps[item.issued], item.work.reduction, comm);
  const ncclResult_t ended = nccl_.GroupEnd();
  return r != ncclSuccess ? r : ended;
}

ncclResult_t NcclLauncher::call(const DeviceStep& s, const std::string& reduction, ncclComm_t comm) const {
  const ncclDataType_t type = type_of((s.from.defined() ? s.from : s.to).dtype());
  const ncclRedOp_t op = reduction_called(reduction);
  const int root = static_cast<int>(s.root);
  switch (s.kind) {
    case DeviceStep::all_reduce:
      return nccl_.AllReduce(data(s.from), data(s.to), count(s.from), type, op, comm, stream_);
    case DeviceStep::reduce:
      return nccl_.Reduce(data(s.from), data(s.to), count(s.from), type, op, root, comm, stream_);
    case DeviceStep::broadcast: {
      const Tensor &from = s.from.defined() ? s.from : s.to, &to = s.to.defined() ? s.to : s.from;
      return nccl_.Broadcast(data(from), data(to), count(from), type, root, comm, stream_);
    }
    case DeviceStep::all_gather:
      return nccl_.AllGather(data(s.from), data(s.to), count(s.from), type, comm, stream_);
    case DeviceStep::reduce_scatter:
      return nccl_.ReduceScatter(data(s.from), data(s.to), count(s.to), type, op, comm, stream_);
    case DeviceStep::send:
      return nccl_.Send(data(s.from), count(s.from), type, root, comm, stream_);
    case DeviceStep::receive:
      return nccl_.Recv(data(s.to), count(s.to), type, root, comm, stream_);
  }
  return ncclInvalidArgument;
}

// ---- what ends

// Their kernels stop. Who frees their memory at once would wait for kernels of others, whose peers may be
// lost without this device knowing it yet.
void NcclLauncher::end(const std::set<Members>& which, const std::string& why, LauncherEvent::Kind kind) {
  cudaSetDevice(device_.index);
  for (const Members& members : which) {
    Ending ending;
    for (Running& r : running_)
      if (r.operation.members == members) {
        events_.push_back({kind, r.operation, why});
        ending.kept.push_back(std::move(r.work));
        cudaEventDestroy(r.ended);
      }
    std::erase_if(running_, [&](const Running& r) { return r.operation.members == members; });
    for (Item& i : queue_)
      if (i.operation.members == members) {
        events_.push_back({kind, i.operation, why});
        ids_.erase(i.operation.id);
        ending.kept.push_back(std::move(i.work));
      }
    std::erase_if(queue_, [&](const Item& i) { return i.operation.members == members; });
    const auto c = communicators_.find(members);
    if (c == communicators_.end()) continue;
    if (c->second.ready) nccl_.CommRevoke(c->second.comm, NCCL_REVOKE_DEFAULT);
    ending.communicator = c->second;
    communicators_.erase(c);
    ending_.push_back(std::move(ending));
  }
}

// Once no kernel of NCCL runs on this device.
bool NcclLauncher::free_ending() {
  if (!running_.empty()) return false;
  if (ending_.front().is_aborted) {
    if (cudaStreamQuery(stream_) != cudaSuccess) {
      cudaGetLastError();
      return false;
    }
    std::erase_if(ending_, [](const Ending& e) { return e.is_aborted; });
    return true;
  }
  for (const Ending& e : ending_) {
    ncclResult_t state = ncclSuccess;
    if (e.communicator.ready && nccl_.CommGetAsyncError(e.communicator.comm, &state) == ncclSuccess &&
        state == ncclInProgress)
      return false;
  }
  nccl_.GroupStart();
  for (Ending& e : ending_) {
    nccl_.CommAbort(e.communicator.comm);
    e.is_aborted = true;
  }
  nccl_.GroupEnd();
  return true;
}

void NcclLauncher::lose(WorkerId worker) {
  std::set<Members> which;
  const auto add = [&](const Members& members) {
    if (std::ranges::find(members, worker, &WorkerDevice::worker) != members.end()) which.insert(members);
  };
  for (const auto& [members, c] : communicators_) add(members);
  for (const Item& i : queue_) add(i.operation.members);
  end(which, "w" + std::to_string(worker) + " was lost");
}

void NcclLauncher::drop(DeviceOperationId id) {
  ids_.erase(id);  // it may have come after the operation ended here
  std::set<Members> which;
  for (const Running& r : running_)
    if (r.operation.id == id) which.insert(r.operation.members);
  for (const Item& i : queue_)
    if (i.operation.id == id) which.insert(i.operation.members);
  end(which, "an operation of the same members failed");
}

}  // namespace troupe::internal::collective
