// The functions of NCCL that the program calls.
#include <nccl.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/support/sim_cuda/nccl_machine.h"

namespace sim_cuda::nccl {

namespace {

thread_local int depth = 0;
thread_local std::vector<std::shared_ptr<Launch>> group;  // of the group that this thread is in
thread_local std::vector<ncclComm*> group_inits, group_aborts;
thread_local std::string last_error;

ncclResult_t refuse(ncclResult_t r, std::string why) {
  last_error = std::move(why);
  return r;
}

int current_device() {
  int d = 0;
  cudaGetDevice(&d);
  return d;
}

// Whether all ranks are there, and the kernels that making it waited for have ended.
bool is_made(ncclComm& c) {
  if (c.ready) return true;
  for (ncclComm* r : c.clique->ranks) {
    if (!r || r->aborted || r->dead) return false;
    const auto& running = state().launches[r->device];
    for (const Launch* l : running)
      if (r->before_init.contains(l->number)) return false;
  }
  const auto& ranks = c.clique->ranks;
  for (size_t i = 0; i < ranks.size(); ++i)
    for (size_t k = 0; k < i; ++k)
      if (ranks[i]->device == ranks[k]->device) c.clique->failed = true;
  c.ready = true;
  ++state().counters.events;
  if (c.clique->failed) c.error = ncclInvalidUsage;  // "Duplicate GPU detected"
  return true;
}

// A first transfer between two ranks makes a connection, for which both have to be there.
bool is_connected(const Launch& l) {
  for (const Operation& o : l.operations) {
    if (o.kind != Kind::send && o.kind != Kind::receive) continue;
    const int me = l.comm->rank;
    if (o.other != me && !l.comm->clique->wanted.contains({o.other, me})) return false;
  }
  return true;
}

void put_on_stream(Machine& m, const std::shared_ptr<Launch>& l) {
  Stream* s = m.find(l->handle);
  l->stream = s;
  state().launches[l->device].push_back(l.get());
  l->number = ++state().counters.launches;
  ++state().counters.events;
  std::string name = name_of(l->operations.front().kind);
  if (l->operations.size() > 1) name = "a group of " + std::to_string(l->operations.size()) + " of NCCL";
  sim_cuda::Task task{name, nullptr};
  task.meeting = l;
  m.add(*s, std::move(task));
}

// Puts on their streams what can be; whether nothing is left.
bool issue(Machine& m, ncclComm& c) {
  while (!c.issuing.empty()) {
    if (c.dead || !is_connected(*c.issuing.front())) return false;
    const auto l = c.issuing.front();
    c.issuing.erase(c.issuing.begin());
    put_on_stream(m, l);
  }
  return true;
}

// The same operation on every rank, and on both sides of a transfer.
void compare(Machine& m, ncclComm& c, const Operation& o) {
  Clique& q = *c.clique;
  if (o.kind == Kind::send || o.kind == Kind::receive) {
    const bool sends = o.kind == Kind::send;
    auto& both = q.transfers[sends ? std::pair(c.rank, o.other) : std::pair(o.other, c.rank)];
    Operation neutral = o;
    neutral.kind = Kind::send;
    auto &mine = both[sends ? 0 : 1], &theirs = both[sends ? 1 : 0];
    mine.push_back(text_of(neutral));
    const size_t at = mine.size() - 1;
    if (theirs.size() > at && theirs[at] != mine[at])
      m.note(cudaErrorIllegalAddress, "transfer " + std::to_string(at) + " between rank " +
                                          std::to_string(c.rank) + " and rank " + std::to_string(o.other) +
                                          " of a communicator: one has " + theirs[at] + ", the other " +
                                          mine[at]);
    return;
  }
  const size_t at = q.count[static_cast<size_t>(c.rank)]++;
  if (at == q.issued.size())
    q.issued.push_back("rank " + std::to_string(c.rank) + " issues " + text_of(o));
  else if (q.issued[at].substr(q.issued[at].find(" issues")) != " issues " + text_of(o))
    m.note(cudaErrorIllegalAddress, "operation " + std::to_string(at) + " of a communicator: " +
                                        q.issued[at] + ", rank " + std::to_string(c.rank) + " " + text_of(o));
}

void check_thread(Machine& m, int device, const char* what) {
  const auto [at, first] = state().threads.try_emplace(device, std::this_thread::get_id());
  if (!first && at->second != std::this_thread::get_id())
    m.note(cudaErrorIllegalAddress,
           "two threads use NCCL on device " + std::to_string(device) + ": the second calls " + what);
}

ncclResult_t end_group();

ncclResult_t enqueue(Operation o, ncclComm_t c, cudaStream_t handle) {
  Machine& m = Machine::get();
  {
    std::lock_guard lock(m.mutex);
    if (m.sticky != cudaSuccess) return refuse(ncclUnhandledCudaError, m.fault);
    if (!c || !state().comms.contains(c)) return refuse(ncclInvalidArgument, "no such communicator");
    kill_whose_time_has_come(m);
    check_thread(m, c->device, name_of(o.kind));
    if (c->aborted || c->finalized) return refuse(ncclInvalidArgument, "a communicator that was ended");
    if (!c->ready || !c->issuing.empty())
      return refuse(ncclInvalidArgument,
                    "the communicator is used before its last operation returned ncclSuccess");
    if (c->error != ncclSuccess) return refuse(c->error, "the communicator has failed");
    const auto ranks = static_cast<int>(c->clique->ranks.size());
    if (o.type < 0 || o.type >= ncclNumTypes || o.other < 0 || o.other >= ranks)
      return refuse(ncclInvalidArgument, "a wrong type, peer or root");
    Stream* s = m.find(handle);
    if (!s || s->device != c->device) return refuse(ncclInvalidUsage, "a stream of another device");
    std::shared_ptr<Launch> l;
    for (const auto& g : group)
      if (g->comm == c && g->handle == handle) l = g;
    if (!l) group.push_back(l = std::make_shared<Launch>(m, c, handle));
    o.launch = l.get();
    l->operations.push_back(o);
    Operation* kept = &l->operations.back();
    compare(m, *c, o);
    const auto peer = static_cast<size_t>(o.other);
    if (o.kind == Kind::send)
      c->sends[peer].push_back(kept);
    else if (o.kind == Kind::receive)
      c->receives[peer].push_back(kept);
    else
      c->collectives.push_back(kept);
    if (o.kind == Kind::send || o.kind == Kind::receive) {
      c->clique->wanted.insert({c->rank, o.other});
      m.changed.notify_all();
    }
  }
  return depth == 0 ? end_group() : ncclSuccess;
}

// Whether it will not end by itself.
bool is_hopeless(const Launch& l) {
  if (l.aborted || !l.comm) return false;
  const auto& ranks = l.comm->clique->ranks;
  return std::any_of(ranks.begin(), ranks.end(), [](ncclComm* r) { return !r || r->aborted || r->dead; });
}

// cudaFree, which waits for the device's kernels. Where there is one thread only, not for those that will
// end.
void finish_aborts(Machine& m, const std::vector<ncclComm*>& comms) {
  for (ncclComm* c : comms) {
    m.run_until(
        [&] {
          const auto& all = state().launches[c->device];
          return std::none_of(all.begin(), all.end(), [&](const Launch* l) {
            return l->started && (m.patience.count() > 0 || is_hopeless(*l));
          });
        },
        "ncclCommAbort, which frees memory of the device,");
    for (auto& r : c->clique->ranks)
      if (r == c) r = nullptr;
    for (auto& l : state().launches[c->device])
      if (l->comm == c) l->comm = nullptr;
    state().comms.erase(c);
    delete c;
  }
}

ncclResult_t end_group() {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  const auto launches = std::exchange(group, {});
  const auto aborts = std::exchange(group_aborts, {});
  const auto inits = std::exchange(group_inits, {});
  ++state().counters.events;
  kill_whose_time_has_come(m);
  finish_aborts(m, aborts);
  ncclResult_t result = ncclSuccess;
  for (ncclComm* c : inits)
    if (!c->blocking)
      result = ncclInProgress;
    else if (!m.run_until([&] { return is_made(*c); }, "ncclCommInitRank", true))
      return ncclUnhandledCudaError;
  for (const auto& l : launches) {
    l->comm->issuing.push_back(l);
    l->comm->polls = m.eager ? 0 : static_cast<int>(m.random() % 3);
  }
  for (const auto& l : launches) {
    ncclComm& c = *l->comm;
    if (!c.blocking)
      result = ncclInProgress;
    else if (!m.run_until([&] { return issue(m, c); }, "ncclGroupEnd, which connects two ranks,", true))
      return ncclUnhandledCudaError;
  }
  return m.sticky == cudaSuccess ? result : refuse(ncclUnhandledCudaError, m.fault);
}

}  // namespace

}  // namespace sim_cuda::nccl

using namespace sim_cuda::nccl;
using sim_cuda::Machine, sim_cuda::Stream;

// ---- communicators
ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  ++state().counters.events;
  kill_whose_time_has_come(m);
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->internal, sizeof id->internal, "simulated %llu",
                static_cast<unsigned long long>(++state().ids));
  state().cliques[id->internal] = std::make_shared<Clique>();
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* out, int n, ncclUniqueId id, int rank, ncclConfig_t* config) {
  const int device = current_device();
  Machine& m = Machine::get();
  ncclComm* c = nullptr;
  {
    std::lock_guard lock(m.mutex);
    if (m.memories.empty()) return refuse(ncclUnhandledCudaError, "no CUDA-capable device");
    kill_whose_time_has_come(m);
    if (config && config->magic != 0xcafebeef)
      return refuse(ncclInvalidArgument, "a config without its initializer");
    if (n < 1 || rank < 0 || rank >= n) return refuse(ncclInvalidArgument, "a rank that is none");
    id.internal[sizeof id.internal - 1] = 0;
    const auto found = state().cliques.find(id.internal);
    if (found == state().cliques.end()) return refuse(ncclSystemError, "nobody listens at this id");
    check_thread(m, device, "ncclCommInitRankConfig");
    Clique& q = *found->second;
    if (q.ranks.empty()) q.ranks.resize(static_cast<size_t>(n)), q.count.resize(static_cast<size_t>(n));
    if (static_cast<int>(q.ranks.size()) != n || q.ranks[static_cast<size_t>(rank)])
      return refuse(ncclInvalidUsage, "a rank comes twice, or ranks count differently");
    c = new ncclComm;
    c->clique = found->second;
    c->rank = rank, c->device = device;
    c->dead = state().dead.contains(device);
    c->blocking = !config || config->blocking != 0;
    c->sends.resize(static_cast<size_t>(n)), c->receives.resize(static_cast<size_t>(n));
    const auto& running = state().launches[device];
    for (const Launch* l : running) c->before_init.insert(l->number);
    q.ranks[static_cast<size_t>(rank)] = c;
    state().comms.insert(c);
    ++state().counters.inits;
    ++state().counters.events;
    group_inits.push_back(c);
    *out = c;
    m.changed.notify_all();
  }
  return depth == 0 ? end_group() : ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* out, int n, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(out, n, id, rank, nullptr);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t* error) {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  if (!c || !state().comms.contains(c)) return refuse(ncclInvalidArgument, "no such communicator");
  kill_whose_time_has_come(m);
  *error = c->error;
  if (c->revoked) {
    m.run_some();
    const auto& all = state().launches[c->device];
    const bool runs = std::any_of(all.begin(), all.end(), [&](const Launch* l) { return l->comm == c; });
    *error = runs ? ncclInProgress : ncclSuccess;
    return ncclSuccess;
  }
  if (c->error != ncclSuccess) return ncclSuccess;
  if (!c->ready && !c->finalized) {
    m.run_some();  // what it waits for goes on
    *error = is_made(*c) ? c->error : ncclInProgress;
    return ncclSuccess;
  }
  if (!c->issuing.empty()) {
    m.run_some();
    if (c->polls-- > 0 || !issue(m, *c)) *error = ncclInProgress;
  }
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t c, int* count) {
  *count = static_cast<int>(c->clique->ranks.size());
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t c, int* rank) {
  *rank = c->rank;
  return ncclSuccess;
}
ncclResult_t ncclCommCuDevice(const ncclComm_t c, int* device) {
  *device = c->device;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t c) {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  c->finalized = true;
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t c) {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  if (!c) return ncclSuccess;
  if (!state().comms.contains(c)) return refuse(ncclInvalidArgument, "no such communicator");
  m.run_until(
      [&] {
        const auto& all = state().launches[c->device];
        return std::none_of(all.begin(), all.end(), [&](const Launch* l) { return l->comm == c; });
      },
      "ncclCommDestroy");
  finish_aborts(m, {c});
  return ncclSuccess;
}

// Its kernels stop, and no other ones meet them.
static void stop(Machine& m, ncclComm* c) {
  c->aborted = true;
  c->issuing.clear();
  for (Launch* l : state().launches[c->device])
    if (l->comm == c) l->aborted = true;
  m.changed.notify_all();
}

ncclResult_t ncclCommRevoke(ncclComm_t c, int flags) {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  if (!c) return ncclSuccess;
  if (!state().comms.contains(c) || flags != NCCL_REVOKE_DEFAULT || c->revoked || c->aborted || c->finalized)
    return refuse(ncclInvalidArgument, "a communicator that cannot be revoked");
  if (!c->ready) m.note(cudaErrorIllegalAddress, "ncclCommRevoke of a communicator that is not made yet");
  ++state().counters.events;
  kill_whose_time_has_come(m);
  c->revoked = true;
  stop(m, c);
  return c->blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclCommAbort(ncclComm_t c) {
  Machine& m = Machine::get();
  {
    std::lock_guard lock(m.mutex);
    if (!c) return ncclSuccess;
    if (!state().comms.contains(c)) return refuse(ncclInvalidArgument, "no such communicator");
    ++state().counters.aborts;
    ++state().counters.events;
    kill_whose_time_has_come(m);
    stop(m, c);
    group_aborts.push_back(c);
  }
  return depth == 0 ? end_group() : ncclSuccess;
}

// ---- groups
ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (depth == 0) return refuse(ncclInvalidUsage, "ncclGroupEnd outside a group");
  return --depth == 0 ? end_group() : ncclSuccess;
}

// ---- operations
ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t type, int peer, ncclComm_t c,
                      cudaStream_t s) {
  return enqueue({.kind = Kind::send, .in = in, .count = count, .type = type, .other = peer}, c, s);
}
ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t s) {
  return enqueue({.kind = Kind::receive, .out = out, .count = count, .type = type, .other = peer}, c, s);
}
ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t c, cudaStream_t s) {
  return enqueue({.kind = Kind::all_reduce, .in = in, .out = out, .count = count, .type = type, .sum = op}, c,
                 s);
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t c,
                           cudaStream_t s) {
  return enqueue({.kind = Kind::all_gather, .in = in, .out = out, .count = count, .type = type}, c, s);
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t c, cudaStream_t s) {
  return enqueue(
      {.kind = Kind::reduce_scatter, .in = in, .out = out, .count = count, .type = type, .sum = op}, c, s);
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t c, cudaStream_t s) {
  return enqueue({.kind = Kind::broadcast, .in = in, .out = out, .count = count, .type = type, .other = root},
                 c, s);
}
ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t c, cudaStream_t s) {
  return enqueue(
      {.kind = Kind::reduce, .in = in, .out = out, .count = count, .type = type, .sum = op, .other = root}, c,
      s);
}

const char* ncclGetErrorString(ncclResult_t r) {
  constexpr const char* kTexts[] = {"no error",       "unhandled cuda error", "system error",
                                    "internal error", "invalid argument",     "invalid usage",
                                    "remote error",   "in progress"};
  return r >= 0 && r < ncclNumResults ? kTexts[r] : "unknown result";
}
const char* ncclGetLastError(ncclComm_t) { return last_error.c_str(); }

namespace sim_cuda {

using nccl::state, nccl::State;

NcclCounters nccl_counters() {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  NcclCounters c = state().counters;
  c.communicators = state().comms.size();
  return c;
}

void reset_nccl() {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  while (m.run_some()) {  // records of events: who waits for one that is dropped waits for ever
  }
  for (auto& [handle, s] : m.streams) s->tasks.clear();
  for (ncclComm* c : state().comms) delete c;
  State& s = state();
  s = State{.ids = s.ids};
}

std::string locked_up() {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  return m.stuck();
}

void run_what_can() {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  while (m.run_some()) {
  }
}

void set_patience(std::chrono::milliseconds patience) {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  m.patience = patience;
}

void set_nccl_kernels_at_once(int count) {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  state().at_once = count;
}

void kill_gpu(int device, bool noticed) {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  nccl::kill(m, device, noticed);
}

void kill_gpu_at(uint64_t event, int device, bool noticed, std::function<void()> told) {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  state().deaths.push_back({event, device, noticed, std::move(told)});
  m.before_step = [&m] { nccl::kill_whose_time_has_come(m); };
}

}  // namespace sim_cuda
