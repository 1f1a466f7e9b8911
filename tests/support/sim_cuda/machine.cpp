#include "tests/support/sim_cuda/machine.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace sim_cuda {

Machine& Machine::get() {
  static auto* machine = new Machine;  // tensors outlive main
  return *machine;
}

Machine::Machine() {
  const char* devices = std::getenv("TROUPE_SIM_DEVICES");
  const int count = devices ? std::atoi(devices) : 4;
  if (devices && std::strcmp(devices, "none") == 0)
    no_devices = cudaErrorInsufficientDriver, driver = 0;
  else if (devices && std::strcmp(devices, "old") == 0)
    no_devices = cudaErrorInsufficientDriver, driver = 11040;
  else if (count <= 0)
    no_devices = cudaErrorNoDevice;
  for (int i = 0; i < count && i < kMostDevices; ++i) memories.push_back(std::make_unique<Memory>(i));
  if (const char* seed = std::getenv("TROUPE_SIM_SEED")) set_seed(std::strtoull(seed, nullptr, 10));
}

void Machine::set_seed(uint64_t seed) {
  eager = false;
  random.seed(seed);
  for (auto& [handle, s] : streams) s->priority = random();
}

Stream* Machine::find(cudaStream_t s) {
  const auto found = streams.find(s);
  return found == streams.end() ? nullptr : found->second.get();
}

Memory* Machine::memory_of(const void* p) {
  for (auto& m : memories)
    if (m->holds(p)) return m.get();
  return nullptr;
}

bool Machine::is_pinned(const void* p) const {
  auto found = pinned.upper_bound(p);
  if (found == pinned.begin()) return false;
  --found;
  return static_cast<const std::byte*>(p) < static_cast<const std::byte*>(found->first) + found->second;
}

void Machine::add(Stream& stream, Task task) {
  task.asked = host_;
  stream.tasks.push_back(std::move(task));
  changed.notify_all();
  if (eager) {
    while (step()) {
    }
    return;
  }
  // Mostly nothing: the host is ahead of its devices. At times some tasks, of whichever streams come first.
  if (random() % 8 != 0) return;
  for (uint64_t n = random() % 4; n > 0 && step(); --n) {
  }
}

bool Machine::blocked(const Stream& s) const {
  const Task& t = s.tasks.front();
  if (t.waits && t.waits->reached < t.version) return true;
  return t.meeting && sticky == cudaSuccess && !t.meeting->can_go();
}

bool Machine::meets() const {
  for (const auto& [handle, s] : streams)
    if (!s->tasks.empty() && s->tasks.front().meeting) return true;
  return false;
}

bool Machine::is_kept(int device) const {
  return std::ranges::any_of(streams, [device](const auto& s) {
    const auto& tasks = s.second->tasks;
    return s.second->device == device && !tasks.empty() && tasks.front().meeting &&
           tasks.front().meeting->keeps_device();
  });
}

bool Machine::step() {
  if (before_step) before_step();
  Stream* first = nullptr;
  for (auto& [handle, s] : streams) {
    if (s->tasks.empty() || blocked(*s)) continue;
    if (!first || s->priority > first->priority) first = s.get();
  }
  if (!first) return false;
  run(*first);
  if (!eager && random() % 16 == 0) first->priority = random();
  return true;
}

void Machine::run(Stream& s) {
  Task& front = s.tasks.front();
  if (!front.has_begun) {
    s.clock.join(*front.asked);
    if (front.after) s.clock.join(*front.after);
    s.clock.advance(s.number);
    if (front.marks) *front.marks = s.clock;
    front.has_begun = true;
  }
  if (front.meeting && sticky == cudaSuccess) {
    running = &s;
    running_task = front.name;
    try {
      if (!front.meeting->go()) return;
    } catch (const Fault& f) {
      note(cudaErrorIllegalAddress, front.name + " on device " + std::to_string(s.device) + ": " + f.text);
    }
  }
  const Task task = std::move(s.tasks.front());
  s.tasks.pop_front();
  if (!task.run || (sticky != cudaSuccess && !task.always)) return;
  running = &s;
  running_task = task.name;
  try {
    task.run();
  } catch (const Fault& f) {
    note(cudaErrorIllegalAddress, task.name + " on device " + std::to_string(s.device) + ": " + f.text);
  }
}

void Machine::host_waited_for(const Clock& clock) {
  const auto now = std::make_shared<Clock>(*host_);
  now->join(clock);
  host_ = now;
}

void Machine::note(cudaError_t error, std::string text) {
  if (sticky != cudaSuccess) return;
  sticky = error;
  fault = std::move(text);
  std::fprintf(stderr, "simulated GPU: %s\n", fault.c_str());
}

bool Machine::run_until(const std::function<bool()>& done, const char* who, bool for_others) {
  while (!done()) {
    if (step()) {
      changed.notify_all();
      continue;
    }
    if (patience.count() > 0 && sticky == cudaSuccess && (for_others || meets()) &&
        changed.wait_for(mutex, patience) == std::cv_status::no_timeout)
      continue;
    note(cudaErrorLaunchTimeout, std::string(who) + " waits for ever: " + blocked_text());
    return false;
  }
  return true;
}

std::string Machine::stuck() const {
  bool work = false;
  for (const auto& [handle, s] : streams) {
    if (s->tasks.empty()) continue;
    if (!blocked(*s)) return "";
    work = true;
  }
  return work ? blocked_text() : "";
}

void Machine::run_all(const char* who) {
  run_until(
      [&] {
        for (const auto& [handle, s] : streams)
          if (!s->tasks.empty()) return false;
        return true;
      },
      who);
  for (const auto& [handle, s] : streams) host_waited_for(s->clock);
}

std::string Machine::blocked_text() const {
  std::string text;
  for (const auto& [handle, s] : streams)
    if (!s->tasks.empty())
      text += (text.empty() ? "" : "; ") + std::string("a stream of device ") + std::to_string(s->device) +
              " at " + s->tasks.front().name +
              (s->tasks.front().meeting ? " (" + s->tasks.front().meeting->waits_for() + ")" : "") +
              " with " + std::to_string(s->tasks.size() - 1) + " tasks behind it";
  return text.empty() ? "no stream has work" : text;
}

// ---- what tests ask
Counters counters() {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  return m.counters;
}

void reset_counters() {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  m.counters = {};
}

void schedule_eagerly() {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  m.eager = true;
  m.run_all("the end of a schedule");
}

void schedule_by_seed(uint64_t seed) {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  m.set_seed(seed);
}

size_t events() {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  return m.events.size();
}

size_t pending() {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  size_t n = 0;
  for (const auto& [handle, s] : m.streams) n += s->tasks.size();
  return n;
}

void fail_allocation(uint64_t n) {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  m.failing_allocation = n;
}

void set_memory(size_t bytes) {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  for (auto& memory : m.memories) memory->limit = bytes;
}

void set_pinned_memory(size_t bytes) {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  m.pinned_limit = bytes;
}

std::string take_fault() {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  m.run_all("the end of a test");
  m.sticky = cudaSuccess;
  return std::exchange(m.fault, "");
}

}  // namespace sim_cuda
