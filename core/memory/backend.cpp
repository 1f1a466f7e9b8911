#include "core/memory/backend.h"

#include <atomic>
#include <charconv>
#include <memory>
#include <utility>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/shown.h"

namespace troupe {
namespace {

// By kind; that of the CPU is always there. Constant-initialized: other units' tables are made before main,
// too.
constinit std::atomic<Backend*> backends[kDeviceKinds] = {};

Backend* find(Device::Kind kind) {
  const auto i = static_cast<size_t>(kind);
  if (i == 0) return &cpu_backend();
  return i < kDeviceKinds ? backends[i].load(std::memory_order_acquire) : nullptr;
}

std::string those_that_are_there() {
  std::string text;
  for (int i = 0; i < kDeviceKinds; ++i)
    if (const Backend* b = find(Device::Kind(i))) text += (text.empty() ? "" : ", ") + std::string(b->name());
  return text;
}

class HostClock final : public DeviceClock {
 public:
  HostClock(Backend& backend, Device device) : backend_(backend), device_(device) { (void)lap(); }
  double lap() override {
    backend_.synchronize(device_);
    const TimePoint now = Clock::system().now();
    return std::chrono::duration<double>(now - std::exchange(last_, now)).count();
  }

 private:
  Backend& backend_;
  const Device device_;
  TimePoint last_;
};

}  // namespace

std::unique_ptr<DeviceClock> Backend::clock(Device device) {
  return std::make_unique<HostClock>(*this, device);
}

Device device_named(const std::string& name) {
  const size_t colon = name.find(':');
  const std::string before = name.substr(0, colon);
  unsigned number = 0;
  if (colon != std::string::npos) {
    const char *from = name.data() + colon + 1, *to = name.data() + name.size();
    const auto [end, error] = std::from_chars(from, to, number);
    if (end != to || error != std::errc() || number > INT8_MAX ||
        name.substr(colon + 1) != std::to_string(number))
      throw_invalid("[device] '" + shown(name) + "' names no device; write for example cpu or cuda:0");
  }
  for (int i = 0; i < kDeviceKinds; ++i) {
    const Backend* b = find(Device::Kind(i));
    if (!b || b->name() != before) continue;
    if (i == 0 && number != 0) throw_invalid("[device] '" + shown(name) + "': there is one CPU, cpu");
    return Device(Device::Kind(i), static_cast<int8_t>(number));
  }
  throw_error(ErrorKind::unimplemented, "[device] '" + shown(name) + "': this program was built for " +
                                            those_that_are_there() + " only");
}

Device::Device(const std::string& name) {
  *this = device_named(name);
  if (is_cpu()) return;
  const Backend& b = *find(kind);
  if (index >= b.devices()) throw_invalid("[device] " + no_such_device(name, b));
}

std::string no_such_device(const std::string& name, const Backend& kind) {
  const std::string why = kind.why_none();
  return "there is no " + name + ": this machine has " + std::to_string(kind.devices()) +
         " devices of the kind " + kind.name() + (why.empty() ? "" : " (" + why + ")");
}

std::string Device::str() const {
  if (is_cpu()) return "cpu";
  const Backend* b = find(kind);
  return (b ? b->name() : "device kind " + std::to_string(static_cast<int>(kind))) + ":" +
         std::to_string(index);
}

void set_backend(Device::Kind kind, Backend& backend) {
  const auto i = static_cast<size_t>(kind);
  if (i == 0 || i >= kDeviceKinds)
    throw_invalid("[device] the kind of a backend is 1 to " + std::to_string(kDeviceKinds - 1) + ", got " +
                  std::to_string(i));
  Backend* before = nullptr;
  if (!backends[i].compare_exchange_strong(before, &backend) && before != &backend)
    throw_invalid("[device] the kind " + std::to_string(i) + " is that of " + before->name());
}

Backend& other_backend_of(Device device) {
  if (Backend* b = find(device.kind)) return *b;
  throw_error(ErrorKind::unimplemented, "[device] no backend for " + device.str() +
                                            ": this program was built for " + those_that_are_there() +
                                            " only");
}

bool has_device(Device device) {
  const Backend* b = find(device.kind);
  return b && device.index >= 0 && device.index < b->devices();
}

std::vector<Device> all_devices() {
  std::vector<Device> all;
  for (int i = 0; i < kDeviceKinds; ++i)
    if (const Backend* b = find(Device::Kind(i)))
      for (int k = 0; k < b->devices(); ++k) all.emplace_back(Device::Kind(i), static_cast<int8_t>(k));
  return all;
}

void Backend::copy_peer(void* to, Device to_device, const void* from, Device from_device, size_t bytes) {
  const std::unique_ptr<std::byte[]> host(new std::byte[bytes]);
  copy(host.get(), from, bytes, CopyWay::to_host, from_device);
  copy(to, host.get(), bytes, CopyWay::from_host, to_device);
}

// The last stream is no actor's: operations of several devices have it (collective/nccl).
StreamId next_device_stream() {
  static std::atomic<unsigned> made{0};
  return static_cast<StreamId>(1 + made.fetch_add(1, std::memory_order_relaxed) % (kDeviceStreams - 2));
}

AllocatorStats allocator_stats(Device device) { return backend_of(device).stats(device); }
void release_cached_memory(Device device) { backend_of(device).release_cached(device); }

}  // namespace troupe
