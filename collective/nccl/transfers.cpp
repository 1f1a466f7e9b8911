#include "collective/nccl/transfers.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "collective/nccl/why_not.h"
#include "core/base/generator.h"
#include "core/base/log.h"
#include "core/tensor/creation.h"
#include "net/wire/wire_rules.h"

namespace troupe::internal::collective {

namespace {

constexpr size_t kFrom = size_t{1} << 20;
constexpr size_t kShown = 200;  // characters of what a transfer brings

std::atomic<bool> in_process = false;
std::atomic<size_t> from_in_process = 1;

size_t from_environment() {
  const char* text = std::getenv("TROUPE_NCCL_FROM");
  if (!text || !*text) return kFrom;
  size_t bytes = 0;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), bytes);
  if (error == std::errc() && !*end) return bytes;
  log::warning(
      fmt::format("[nccl] TROUPE_NCCL_FROM is \"{}\", which is no number of bytes: {} it is", text, kFrom));
  return kFrom;
}

// Groups have numbers that are as random.
DeviceOperationId id_of(WorkerId sender, uint32_t number) {
  constexpr uint64_t kTransfers = 0x7472616e73666572;
  return {splitmix64(kTransfers ^ sender), number};
}

// The same on both ends.
std::string text_of(const std::vector<Tensor>& tensors) {
  std::string text = "transfer of";
  for (const Tensor& t : tensors) text += " " + std::string(name(t.dtype())) + " " + t.shape().str();
  if (text.size() <= kShown) return text;
  return fmt::format("{}... of {} tensors (#{:x})", text.substr(0, kShown), tensors.size(),
                     net::method_id(text));
}

int64_t bytes_of(const std::vector<Tensor>& tensors) {
  size_t bytes = 0;
  for (const Tensor& t : tensors) bytes += t.nbytes();
  return static_cast<int64_t>(bytes);
}

std::vector<WorkerDevice> both(WorkerDevice a, WorkerDevice b) { return {std::min(a, b), std::max(a, b)}; }

size_t rank_of(const DeviceOperation& operation, WorkerDevice device) {
  return static_cast<size_t>(std::ranges::find(operation.members, device) - operation.members.begin());
}

}  // namespace

size_t transfers_from() {
  static const size_t from = from_environment();
  return in_process ? from_in_process.load() : from;
}
void set_transfers_in_process(bool on, size_t from) {
  from_in_process = from;
  in_process = on;
}
bool transfers_in_process() { return in_process; }

Transfers::Transfers(actors::Worker& worker, DeviceOperations& devices)
    : worker_(worker), devices_(devices), asks_(worker.runtime()) {
  kMeet.serve_later(
      worker, [this](const Ref<actors::Invocation>& call, const TransferEnd& end, const std::string& device) {
        asks_.post([this, call, end, device] {  // it may load the library
          kMeet.answer(*call, end_for(call->from(), end, device));
        });
      });
}

void Transfers::stop() { asks_.finish(); }

Transfers::Counts Transfers::counts() const { return {sent_, sent_bytes_, received_, received_bytes_}; }

DeviceOperation Transfers::operation(WorkerId sender, uint32_t number, WorkerDevice from, WorkerDevice to,
                                     const std::vector<Tensor>& tensors) const {
  return {.id = id_of(sender, number),
          .leader = to,
          .members = both(from, to),
          .brings = text_of(tensors),
          .called_by_all = true};
}

// ---- who sends

class Transfers::Leaving final : public net::Departure {
 public:
  explicit Leaving(Transfers& all) : all_(all) {}
  void add(Device here, Device there, WorkerDevice other) { goods_.push_back({here, there, other}); }
  bool is_empty() const { return goods_.empty(); }

  std::optional<uint32_t> take(const Tensor& t, Device there) override {
    if (t.nbytes() > net::Limits{}.buffer_bytes) return {};
    for (Goods& g : goods_) {
      if (g.here != t.device() || g.there != there) continue;
      if (g.tensors.empty()) do
          g.number = ++all_.last_number_;
        while (g.number == net::kNoBuffer);
      g.tensors.push_back(t.contiguous_data());
      return g.number;
    }
    return {};
  }

  void follow() override {
    for (Goods& g : goods_)
      if (!g.tensors.empty()) follow(g);
    goods_.clear();
  }

 private:
  struct Goods {
    Device here, there;
    WorkerDevice other;
    uint32_t number = 0;
    std::vector<Tensor> tensors = {};
  };

  void follow(Goods& g) {
    Transfers& all = all_;
    const WorkerId own = all.worker_.id();
    const DeviceOperation operation =
        all.operation(own, g.number, {own, static_cast<uint32_t>(g.here.index)}, g.other, g.tensors);
    const size_t peer = rank_of(operation, g.other);
    const int64_t bytes = bytes_of(g.tensors);
    DeviceWork work;
    for (Tensor& t : g.tensors) work.steps.push_back({DeviceStep::send, std::move(t), {}, peer});
    const auto done = [&all, bytes, what = operation.brings](const std::optional<Error>& error) {
      if (error) return log::info("[nccl] " + what + ": " + error->message());
      ++all.sent_;
      all.sent_bytes_ += bytes;
    };
    try {
      all.devices_.begin(operation, g.here, std::move(work), done, DeviceOperations::Told::at_once);
    } catch (...) {
      all.devices_.refuse(operation, g.here, current_error());
    }
  }

  Transfers& all_;
  std::vector<Goods> goods_;
};

std::shared_ptr<net::Departure> Transfers::leave(WorkerId to, const std::vector<Share>& shares) {
  if (!transfers_in_process() && worker_.transport().carries_devices()) return nullptr;
  size_t all = 0;
  for (const Share& s : shares) all += s.bytes;
  if (all > net::Limits{}.message_bytes) return nullptr;
  const auto leaving = std::make_shared<Leaving>(*this);
  const Lock lock(mutex_);
  for (const Share& s : shares) {
    if (s.bytes < transfers_from() || s.here.kind != s.there.kind) continue;
    const RouteKey key{to, s.here, s.there};
    const auto [at, is_new] = routes_.try_emplace(key);
    if (is_new)  // by another thread: this one may hold what must not be held up
      asks_.post([this, key] { ask(key); });
    if (at->second.state == Route::open) leaving->add(s.here, s.there, at->second.there);
  }
  if (leaving->is_empty()) return nullptr;
  return leaving;
}

// ---- who receives

class Transfers::Arriving final : public net::Arrival {
 public:
  Arriving(Transfers& all, WorkerId from) : all_(all), from_(from) {}

  Tensor expect(uint32_t number, DType dtype, const Shape& shape, Device device) override {
    const auto index = static_cast<uint32_t>(device.index);
    Goods* goods = nullptr;
    for (Goods& g : goods_)
      if (g.number == number) goods = &g;
    if (!goods) {
      const Lock lock(all_.mutex_);
      const auto sender = all_.senders_.find({from_, index});
      if (!has_device(device) || sender == all_.senders_.end())
        throw_invalid("[nccl] w" + std::to_string(from_) + " sends a tensor to " + device.str() +
                      ", about which it has not asked");
      goods_.push_back({number, device, sender->second});
      goods = &goods_.back();
    }
    if (goods->device != device) throw_invalid("[nccl] one transfer to two devices");
    const CallFrameScope neutral({&all_.worker_});
    try {
      goods->tensors.push_back(empty(shape, {dtype, device}));
    } catch (const std::exception& e) {
      failed_ = Error(
          ErrorKind::failed,
          fmt::format("[nccl] no memory for {} {} on {} of {}; free some there, or send less at once: {}",
                      name(dtype), shape.str(), device.str(), all_.worker_.name(), e.what()));
      throw Error(*failed_);
    }
    return goods->tensors.back();
  }

  void begin(std::function<void(const std::optional<Error>&)> done) override {
    const auto ended = std::make_shared<Ended>();
    ended->left = goods_.size();
    ended->done = std::move(done);
    for (Goods& g : goods_) begin(g, ended);
  }

 private:
  struct Goods {
    uint32_t number = 0;
    Device device;
    WorkerDevice other;
    std::vector<Tensor> tensors = {};
  };
  struct Ended {
    std::atomic<size_t> left;
    std::function<void(const std::optional<Error>&)> done;
    Mutex mutex;
    std::optional<Error> error TROUPE_GUARDED_BY(mutex);

    void one(const std::optional<Error>& why) {
      std::optional<Error> all;
      {
        const Lock lock(mutex);
        if (why && !error) error = why;
        all = error;
      }
      if (--left == 0) std::exchange(done, nullptr)(all);
    }
  };

  void begin(Goods& g, const std::shared_ptr<Ended>& ended) {
    Transfers& all = all_;
    const WorkerDevice own{all.worker_.id(), static_cast<uint32_t>(g.device.index)};
    const DeviceOperation operation = all.operation(from_, g.number, g.other, own, g.tensors);
    if (failed_) {
      all.devices_.refuse(operation, g.device, *failed_);
      return ended->one(failed_);
    }
    const size_t peer = rank_of(operation, g.other);
    const int64_t bytes = bytes_of(g.tensors);
    DeviceWork work;
    for (Tensor& t : g.tensors) work.steps.push_back({DeviceStep::receive, {}, std::move(t), peer});
    const CallFrameScope neutral({&all.worker_});
    const auto done = [&all, bytes, ended](const std::optional<Error>& error) {
      if (!error) {
        ++all.received_;
        all.received_bytes_ += bytes;
      }
      ended->one(error);
    };
    try {
      all.devices_.begin(operation, g.device, std::move(work), done, DeviceOperations::Told::at_once);
    } catch (...) {
      const Error why = current_error();
      all.devices_.refuse(operation, g.device, why);
      ended->one(why);
    }
  }

  Transfers& all_;
  const WorkerId from_;
  std::vector<Goods> goods_;
  std::optional<Error> failed_;
};

std::shared_ptr<net::Arrival> Transfers::arrive(WorkerId from) {
  return std::make_shared<Arriving>(*this, from);
}

// ---- who may send to whom

void Transfers::ask(RouteKey key) {
  const auto& [to, here, there] = key;
  TransferEnd end;
  end.place = devices_.place_of(here, end.why);
  if (!end.why.empty()) return settle(key, {.state = Route::closed, .why = end.why});
  end.turns = devices_.addresses();
  const CallFrameScope neutral({&worker_});
  kMeet.ask(worker_, to, std::move(end), there.str())
      .on_ready([this, key](const Result<TransferEnd>& answer) { heard(key, answer); });
}

void Transfers::heard(const RouteKey& key, const Result<TransferEnd>& answer) {
  const auto& [to, here, there] = key;
  Route route{.state = Route::closed, .there = {to, static_cast<uint32_t>(there.index)}};
  if (!answer.ok()) {
    route.why = answer.error().message();
  } else if (!answer.value().why.empty()) {
    route.why = answer.value().why;
  } else if (!take_room(static_cast<uint32_t>(here.index), route.there)) {
    route.why = no_room(worker_.id(), here);
  } else {
    devices_.add_peer(to, answer.value().turns);
    route.state = Route::open;
  }
  settle(key, std::move(route));
}

void Transfers::settle(const RouteKey& key, Route route) {
  const auto& [to, here, there] = key;
  log::info(fmt::format("[nccl] tensors of {} of {} to {} of {} go {}", here.str(), worker_.name(),
                        there.str(), worker_.members().name_of(to),
                        route.state == Route::open ? "by NCCL" : "by memory of the host: " + route.why));
  const Lock lock(mutex_);
  if (const auto at = routes_.find(key); at != routes_.end()) at->second = std::move(route);
}

// Each device has a number of communicators that it can bear.
bool Transfers::has_room(uint32_t device, WorkerDevice other) const {
  const auto at = peers_.find(device);
  return at == peers_.end() || at->second.contains(other) || at->second.size() < kMostPeers;
}

bool Transfers::take_room(uint32_t device, WorkerDevice other) {
  const Lock lock(mutex_);
  if (!has_room(device, other)) return false;
  peers_[device].insert(other);
  return true;
}

std::string Transfers::name_of(WorkerId worker, Device device) const {
  return device.str() + " of " + worker_.members().name_of(worker);
}

std::string Transfers::no_room(WorkerId worker, Device device) const {
  return fmt::format("{} exchanges tensors with {} other devices already, and each takes memory of it",
                     name_of(worker, device), kMostPeers);
}

std::string Transfers::why_not(WorkerId to, Device here, Device there, const DevicePlace& its) const {
  if (here.kind != there.kind) return name_of(to, there) + " is of another kind than " + here.str();
  std::string why;
  const DevicePlace own = devices_.look_at(here, why);
  if (!why.empty()) return why;
  const Lock lock(mutex_);
  if (const auto at = routes_.find({to, here, there});
      at != routes_.end() && at->second.state != Route::asked)
    return at->second.why;
  why = why_apart({name_of(worker_.id(), here), own}, {name_of(to, there), its});
  if (!why.empty()) return why;
  const bool room = has_room(static_cast<uint32_t>(here.index), {to, static_cast<uint32_t>(there.index)});
  return room ? "" : no_room(worker_.id(), here);
}

TransferEnd Transfers::end_for(WorkerId other, const TransferEnd& its, const std::string& called) {
  TransferEnd own;
  Device device = cpu;
  try {
    device = Device(called);
    own.place = devices_.place_of(device, own.why);
  } catch (const Error& e) {
    own.why = e.message();
  }
  const auto index = static_cast<uint32_t>(device.index);
  if (!own.why.empty()) return own;
  const WorkerDevice sender{other, its.place.device};
  own.why = why_apart({name_of(other, Device(device.kind, static_cast<int8_t>(sender.device))), its.place},
                      {name_of(worker_.id(), device), own.place});
  if (!own.why.empty()) return own;
  if (!take_room(index, sender)) {
    own.why = no_room(worker_.id(), device);
  } else {
    const Lock lock(mutex_);
    if (senders_.emplace(std::pair(other, index), sender).first->second != sender)
      own.why =
          fmt::format("another device of {} sends to {}", worker_.members().name_of(other), device.str());
  }
  if (!own.why.empty()) return own;
  devices_.add_peer(other, its.turns);
  own.turns = devices_.addresses();
  return own;
}

void Transfers::worker_lost(WorkerId worker) {
  const Lock lock(mutex_);
  std::erase_if(routes_, [worker](const auto& r) { return r.first.to == worker; });
  std::erase_if(senders_, [worker](const auto& s) { return s.first.first == worker; });
  for (auto& [device, peers] : peers_)
    std::erase_if(peers, [worker](WorkerDevice d) { return d.worker == worker; });
}

}  // namespace troupe::internal::collective
