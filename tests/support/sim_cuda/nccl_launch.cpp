#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tests/support/sim_cuda/nccl_elements.h"
#include "tests/support/sim_cuda/nccl_machine.h"

namespace sim_cuda::nccl {

const char* name_of(Kind kind) {
  constexpr const char* kNames[] = {"ncclSend",          "ncclRecv",      "ncclAllReduce", "ncclAllGather",
                                    "ncclReduceScatter", "ncclBroadcast", "ncclReduce"};
  return kNames[static_cast<int>(kind)];
}

std::string text_of(const Operation& o) {
  constexpr const char* kTypes[] = {"int8",    "uint8",   "int32",   "uint32",   "int64",      "uint64",
                                    "float16", "float32", "float64", "bfloat16", "float8e4m3", "float8e5m2"};
  return std::string(name_of(o.kind)) + "(" + std::to_string(o.count) + " " + kTypes[o.type] +
         (o.kind == Kind::all_reduce || o.kind == Kind::reduce_scatter || o.kind == Kind::reduce
              ? ", operation " + std::to_string(o.sum)
              : "") +
         (o.kind == Kind::broadcast || o.kind == Kind::reduce ? ", root " + std::to_string(o.other) : "") +
         ")";
}

State& state() {
  static auto* s = new State;
  return *s;
}

namespace {

bool in_order() {
  const char* v = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  return v && std::strcmp(v, "1") == 0;
}

void is_after(Operation& o, Operation& before) { o.launch->stream->clock.join(before.launch->stream->clock); }

}  // namespace

void kill(Machine& m, int device, bool noticed) {
  state().dead.insert(device);
  ++state().counters.deaths;
  for (auto& [handle, s] : m.streams) {
    const auto kernel =
        std::ranges::find_if(s->tasks, [](const sim_cuda::Task& t) { return t.meeting != nullptr; });
    if (s->device == device) s->tasks.erase(kernel, s->tasks.end());
  }
  state().launches[device].clear();
  for (ncclComm* c : state().comms) {
    if (c->device != device) continue;
    c->dead = true;
    for (ncclComm* other : c->clique->ranks)
      if (noticed && other && other != c && other->error == ncclSuccess) other->error = ncclRemoteError;
  }
  m.changed.notify_all();
}

void kill_whose_time_has_come(Machine& m) {
  const auto is_due = [](const Death& d) { return state().counters.events >= d.event; };
  auto& all = state().deaths;
  for (auto d = std::ranges::find_if(all, is_due); d != all.end(); d = std::ranges::find_if(all, is_due)) {
    const Death death = std::move(*d);
    all.erase(d);
    kill(m, death.device, death.noticed);
    if (death.told) death.told();
  }
}

Launch::~Launch() {
  std::erase(state().launches[device], this);
  if (!comm || !state().comms.contains(comm)) return;
  const auto is_mine = [&](const Operation* o) { return o->launch == this; };
  for (auto& q : comm->sends) std::erase_if(q, is_mine);
  for (auto& q : comm->receives) std::erase_if(q, is_mine);
  std::erase_if(comm->collectives, is_mine);
}

bool Launch::can_start() const {
  const auto& all = state().launches[device];
  int running = 0;
  for (const Launch* l : all) {
    running += l->started;
    if (in_order() && !l->started && l != this) return false;  // one before it
    if (l == this) break;
  }
  if (!in_order())
    running =
        static_cast<int>(std::count_if(all.begin(), all.end(), [](const Launch* l) { return l->started; }));
  return running < state().at_once;
}

bool Launch::all_done() const {
  return std::all_of(operations.begin(), operations.end(), [](const Operation& o) { return o.done; });
}

bool Launch::can_go() const {
  if (aborted) return true;
  if (!started) return can_start();
  return all_done() ||
         std::any_of(operations.begin(), operations.end(), [&](const Operation& o) { return met(o); });
}

bool Launch::go() {
  if (!aborted) {
    if (!started) {
      started = true;
      ++state().counters.events;
      return false;
    }
    for (Operation& o : operations)
      if (met(o)) {
        perform(o);
        return false;
      }
    if (!all_done()) return false;
  }
  std::erase(state().launches[device], this);
  return true;
}

std::string Launch::waits_for() const {
  if (!started) return "which waits for other kernels of NCCL on the device";
  for (const Operation& o : operations) {
    if (o.done) continue;
    const auto& ranks = comm->clique->ranks;
    if (o.kind == Kind::send || o.kind == Kind::receive)
      return text_of(o) + " of rank " + std::to_string(comm->rank) + " waits for rank " +
             std::to_string(o.other);
    std::string who;
    for (size_t r = 0; r < ranks.size(); ++r)
      if (!ranks[r] || ranks[r]->aborted || ranks[r]->dead || ranks[r]->collectives.empty() ||
          !ranks[r]->collectives.front()->launch->started)
        who += (who.empty() ? "" : ", ") + std::to_string(r);
    return text_of(o) + " of rank " + std::to_string(comm->rank) + " waits for rank " + who;
  }
  return "";
}

// The one that it meets now, if both are the first of their kind between the two.
Operation* Launch::other_side(const Operation& o, ncclComm* c) {
  ncclComm* there = c->clique->ranks[static_cast<size_t>(o.other)];
  if (!there || there->aborted || there->dead) return nullptr;
  const auto peer = static_cast<size_t>(o.other), me = static_cast<size_t>(c->rank);
  auto& mine = o.kind == Kind::send ? c->sends[peer] : c->receives[peer];
  auto& theirs = o.kind == Kind::send ? there->receives[me] : there->sends[me];
  if (mine.empty() || mine.front() != &o || theirs.empty() || !theirs.front()->launch->started)
    return nullptr;
  return theirs.front();
}

bool Launch::met(const Operation& o) const {
  if (o.done || !started) return false;
  if (o.kind == Kind::send || o.kind == Kind::receive) return other_side(o, comm) != nullptr;
  if (comm->collectives.empty() || comm->collectives.front() != &o) return false;
  for (ncclComm* c : comm->clique->ranks)
    if (!c || c->aborted || c->dead || c->collectives.empty() || !c->collectives.front()->launch->started)
      return false;
  return true;
}

std::byte* Launch::seen(const Operation& o, const void* p, size_t bytes, bool written) const {
  if (bytes == 0) return nullptr;
  Memory* memory = machine.memory_of(p);
  const Launch& l = *o.launch;
  if (!memory || memory != machine.memories[static_cast<size_t>(l.device)].get())
    throw Fault{text_of(o) + " of rank " + std::to_string(l.comm->rank) +
                " gets memory that is not its device's"};
  machine.running = l.stream;
  machine.running_task = name_of(o.kind);
  return static_cast<std::byte*>(memory->seen(p, bytes, written, written ? "writes to" : "reads"));
}

void Launch::perform(Operation& o) {
  ++state().counters.events;
  if (o.kind != Kind::send && o.kind != Kind::receive) return perform_collective();
  Operation& peer = *other_side(o, comm);
  Operation &from = o.kind == Kind::send ? o : peer, &to = o.kind == Kind::send ? peer : o;
  const size_t bytes = from.count * size_of(from.type);
  is_after(to, from);
  const std::byte* source = seen(from, from.in, bytes, false);
  if (std::byte* target = seen(to, to.out, bytes, true)) std::memcpy(target, source, bytes);
  from.launch->comm->sends[static_cast<size_t>(from.other)].pop_front();
  to.launch->comm->receives[static_cast<size_t>(to.other)].pop_front();
  from.done = to.done = true;
  ++state().counters.transfers;
}

void Launch::perform_collective() {
  std::vector<Operation*> all;
  for (ncclComm* c : comm->clique->ranks) all.push_back(c->collectives.front());
  const auto n = all.size();
  for (Operation* a : all)
    for (Operation* b : all) is_after(*a, *b);
  const Operation& any = *all.front();
  const size_t item = size_of(any.type), bytes = any.count * item;
  const bool gathers = any.kind == Kind::all_gather, scatters = any.kind == Kind::reduce_scatter;
  // Everybody's input, before anybody's output, which may be the same memory.
  std::vector<std::vector<std::byte>> in(n);
  for (size_t r = 0; r < n; ++r) {
    if (any.kind == Kind::broadcast && static_cast<int>(r) != any.other) continue;
    const size_t size = scatters ? bytes * n : bytes;
    if (const std::byte* from = seen(*all[r], all[r]->in, size, false)) in[r].assign(from, from + size);
  }
  std::vector<std::byte> result;
  if (gathers) {
    for (const auto& part : in) result.insert(result.end(), part.begin(), part.end());
  } else if (any.kind == Kind::broadcast) {
    result = in[static_cast<size_t>(any.other)];
  } else {
    result = in[0];
    const size_t elements = result.size() / item;
    for (size_t r = 1; r < n; ++r) reduce_into(result.data(), in[r].data(), elements, any.type, any.sum);
    if (any.sum == ncclAvg) divide(result.data(), elements, any.type, static_cast<int>(n));
  }
  for (size_t r = 0; r < n; ++r) {
    Operation& o = *all[r];
    const bool is_root = static_cast<int>(r) == any.other;
    const bool has_it = any.kind == Kind::broadcast && is_root && o.in == o.out;
    if (!has_it && (any.kind != Kind::reduce || is_root)) {
      const size_t size = scatters ? bytes : result.size();
      if (std::byte* to = seen(o, o.out, size, true))
        std::memcpy(to, result.data() + (scatters ? r * bytes : 0), size);
    }
    o.launch->comm->collectives.pop_front();
    o.done = true;
  }
  ++state().counters.collectives;
}

}  // namespace sim_cuda::nccl
