#include "collective/nccl/device_operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "core/base/log.h"
#include "core/base/random_bytes.h"
#include "net/address.h"

namespace troupe::internal::collective {

namespace {

// Which devices of the process a worker has: the library takes a device once, and one thread uses it there.
class Claims {
 public:
  bool claim(uint32_t device, const void* owner) {
    const Lock lock(mutex_);
    const void*& has = owners_.at(device);
    if (!has) has = owner;
    return has == owner;
  }
  bool has_other(uint32_t device, const void* owner) const {
    const Lock lock(mutex_);
    return owners_.at(device) && owners_.at(device) != owner;
  }
  void release(const void* owner) {
    const Lock lock(mutex_);
    std::ranges::replace(owners_, owner, nullptr);
  }

 private:
  mutable Mutex mutex_;
  std::array<const void*, 128> owners_ TROUPE_GUARDED_BY(mutex_) = {};  // by device
};
constinit Claims device_claims;  // has nothing to destroy: workers may be static

std::string random_address() { return net::abstract_address("troupe-turns-" + random_hex(8)); }

// Of others' hosts: those that this worker listens on.
std::set<std::string> hosts_of(actors::Worker& worker) {
  std::set<std::string> hosts;
  if (const auto self = worker.members().find(worker.id()))
    for (const std::string& a : self->addresses)
      if (a.starts_with("tcp:")) hosts.insert(net::parse_address(a).name);
  return hosts;
}

uint32_t index_of(Device device) { return static_cast<uint32_t>(device.index); }

}  // namespace

DeviceOperations::DeviceOperations(actors::Worker& worker)
    : worker_(worker),
      host_(worker.host()),
      links_(peers_, host_, [this](WorkerId id, const Error& why) { worker_lost(id, why); }),
      results_(worker.runtime()) {}

DeviceOperations::~DeviceOperations() { stop(); }

void DeviceOperations::set_transport(MakeTransport make) { make_transport_ = std::move(make); }
void DeviceOperations::stay_out(std::string why) {
  const Lock lock(mutex_);
  why_out_ = std::move(why);
  make_transport_ = nullptr;
}

void DeviceOperations::stop() {
  std::map<uint32_t, std::unique_ptr<OwnDevice>> devices;
  std::vector<std::unique_ptr<net::Listener>> listeners;
  {
    const Lock lock(mutex_);
    stopped_ = true;
    devices.swap(devices_);
    listeners.swap(listeners_);
  }
  links_.stop();
  listeners.clear();
  transport_.reset();
  for (auto& [index, own] : devices) own->thread.reset();
  device_claims.release(this);
  results_.finish();
}

// ---- where turns travel

void DeviceOperations::open_transport() {
  if (transport_) return;
  transport_ = make_transport_(*this);
  links_.set_transport(*transport_);
  listeners_.push_back(transport_->listen(random_address()));
  for (const std::string& host : hosts_of(worker_)) {
    try {
      listeners_.push_back(
          transport_->listen(net::Address{.kind = net::Address::Kind::tcp, .name = host, .port = 0}.str()));
    } catch (const Error& e) {  // a name by which others reach it, and that is not its own
      log::info("[nccl] no messages of turns at " + host + ": " + e.message());
    }
  }
  for (const auto& l : listeners_) addresses_.push_back(l->address());
}

std::vector<std::string> DeviceOperations::addresses() {
  const Lock lock(mutex_);
  if (stopped_ || !make_transport_)
    throw_error(ErrorKind::unimplemented, "[nccl] worker " + worker_.name() + " takes no turns");
  open_transport();
  return addresses_;
}

void DeviceOperations::on_accepted(std::shared_ptr<net::Connection> connection) {
  if (const auto why = links_.accepted(connection)) {
    connection->set_tag(std::make_shared<int>(0));
    connection->close(*why);
  }
}

void DeviceOperations::on_closed(net::Connection& connection, const Error& reason) {
  links_.closed(connection, reason);
}

void DeviceOperations::on_message(net::Connection& connection, net::Message message) {
  const auto packet = packet_in(message.header);
  if (!packet || !message.buffers.empty()) return connection.close("what came is no message of turns");
  const WorkerDevice from{connection.peer().id, packet->from};
  std::optional<Error> refused;
  {
    const Lock lock(mutex_);
    OwnDevice* const own = find(packet->to);
    if (!own) return;
    const DeviceOperationId id = packet->message.operation.id;
    if (!packet->library_id.empty()) {
      const auto called = own->called.find(id);
      if (called != own->called.end() && called->second.operation.members.front() == from)
        own->thread->tell([id, text = packet->library_id](Launcher& l) { l.has_id(id, text); });
      return;
    }
    Out out;
    own->turns.receive(from, packet->message, out);
    refused = out.refused;
    perform(packet->to, std::move(out));
  }
  flush();
  if (refused) connection.close(refused->message());
}

void DeviceOperations::put(WorkerId to, TurnsPacket packet) {
  if (!peers_.find(to) && !peers_.loss(to) && unknown_.try_emplace(to).second) strangers_.push_back(to);
  if (const auto at = unknown_.find(to); at != unknown_.end())
    at->second.push_back(std::move(packet));
  else
    outbox_.push_back({to, std::move(packet)});
}

// One thread at a time, so that messages to a worker keep their order. No lock is held: a connection that
// cannot be made is told of by the thread that sends.
void DeviceOperations::flush() {
  std::vector<WorkerId> strangers;
  bool sends;
  {
    const Lock lock(mutex_);
    strangers.swap(strangers_);
    sends = std::exchange(sends_, true);
  }
  for (const WorkerId w : strangers) ask_where(w);
  if (sends) return;
  for (;;) {
    std::deque<Sent> now;
    {
      const Lock lock(mutex_);
      if (outbox_.empty() || stopped_) return (void)(sends_ = false);
      now.swap(outbox_);
    }
    for (const Sent& s : now) {
      try {
        links_.send(s.to, {.header = words_of(s.packet), .buffers = {}});
      } catch (const Error& e) {
        worker_lost(s.to, e);
      }
    }
  }
}

void DeviceOperations::ask_where(WorkerId peer) {
  const CallFrameScope neutral({&worker_});
  kTurns.ask(worker_, peer).on_ready([this, peer](const Result<std::vector<std::string>>& addresses) {
    heard_where(peer, addresses);
  });
}

void DeviceOperations::heard_where(WorkerId peer, const Result<std::vector<std::string>>& addresses) {
  if (!addresses.ok()) return worker_lost(peer, addresses.error());
  add_peer(peer, addresses.value());
}

void DeviceOperations::add_peer(WorkerId peer, const std::vector<std::string>& addresses) {
  const auto member = worker_.members().find(peer);
  if (!peers_.find(peer))
    peers_.add({peer, worker_.members().name_of(peer), member ? member->host : "", addresses});
  {
    const Lock lock(mutex_);
    auto waiting = unknown_.extract(peer);
    if (stopped_ || waiting.empty()) return;
    for (TurnsPacket& p : waiting.mapped()) outbox_.push_back({peer, std::move(p)});
  }
  flush();
}

void DeviceOperations::worker_lost(WorkerId worker, const Error& why) {
  peers_.mark_lost(worker, why);
  links_.drop(worker, why.message());
  {
    const Lock lock(mutex_);
    unknown_.erase(worker);
    for (auto& [index, own] : devices_) {
      Out out;
      own->turns.lost(worker, why, out);
      own->thread->tell([worker](Launcher& l) { l.lose(worker); });
      perform(index, std::move(out));
    }
  }
  flush();
}

// ---- operations

DevicePlace DeviceOperations::look_at(Device device, std::string& why) {
  const Lock lock(mutex_);
  return look_at_with_lock(device, why);
}

DevicePlace DeviceOperations::look_at_with_lock(Device device, std::string& why) {
  const auto without = [&](const std::string& reason) {
    why = fmt::format("{} does without NCCL on {}: {}", worker_.name(), device.str(), reason);
    return DevicePlace();
  };
  const DeviceLibrary* const library = device_library();
  if (!library || !library->has(device))
    return without("this program was built without it: build it where nccl.h is found");
  if (stopped_ || !make_transport_) return without(stopped_ ? "it has stopped" : why_out_);
  if (const auto hosts = hosts_of(worker_); !hosts.empty()) set_library_host(*hosts.begin());
  const int version = library->version();
  if (version == 0) return without(library->why());
  const uint32_t index = index_of(device);
  if (device_claims.has_other(index, this))
    return without("another worker of its process has it: give each worker a process, or a GPU, of its own");
  return {version, net::method_id(host_ + " " + library->device_name(device)), index};
}

DevicePlace DeviceOperations::place_of(Device device, std::string& why) {
  const Lock lock(mutex_);
  const DevicePlace place = look_at_with_lock(device, why);
  const uint32_t index = index_of(device);
  if (!place.version) return place;
  if (!device_claims.claim(index, this)) return look_at_with_lock(device, why);  // another one was faster
  if (auto& own = devices_[index]; !own) {
    open_transport();
    const WorkerDevice here{worker_.id(), index};
    auto made = std::make_unique<OwnDevice>(here);
    made->thread = std::make_unique<DeviceThread>(
        device_library()->make_launcher(here, device),
        [this, index](const std::vector<LauncherEvent>& events) { heard(index, events); });
    own = std::move(made);
  }
  return place;
}

DeviceOperations::OwnDevice* DeviceOperations::find(uint32_t device) {
  const auto at = devices_.find(device);
  return at == devices_.end() ? nullptr : at->second.get();
}

void DeviceOperations::begin(const DeviceOperation& operation, Device device, DeviceWork work, Done done,
                             Told told) {
  auto inputs = device_library()->inputs_of(work, device);
  for (const WorkerDevice d : operation.members)
    if (d.worker != worker_.id()) worker_.watch(d.worker);
  {
    const Lock lock(mutex_);
    OwnDevice* const own = find(index_of(device));
    if (!own) throw_error(ErrorKind::cancelled, "[nccl] worker " + worker_.name() + " has stopped");
    own->called[operation.id] = {operation, std::move(done), told};
    // A function that is kept is copied.
    const auto what = std::make_shared<std::pair<DeviceWork, std::unique_ptr<DeviceInputs>>>(
        std::move(work), std::move(inputs));
    own->thread->tell([operation, what](Launcher& l) {
      l.expect(operation, std::move(what->first), std::move(what->second));
    });
  }
}

void DeviceOperations::refuse(const DeviceOperation& operation, Device device, const Error& why) {
  {
    const Lock lock(mutex_);
    OwnDevice* const own = find(index_of(device));
    if (!own) return;
    Out out;
    own->turns.refuse(operation, why, out);
    perform(index_of(device), std::move(out));
  }
  flush();
}

void DeviceOperations::give_up(DeviceOperationId id, Device device, const Error& why) {
  {
    const Lock lock(mutex_);
    OwnDevice* const own = find(index_of(device));
    if (!own) return;
    const auto called = own->called.find(id);
    if (called == own->called.end()) return;
    Out out;
    if (!called->second.ready)
      own->turns.refuse(called->second.operation, why, out);
    else
      own->turns.give_up(id, why, out);
    if (why.kind() == ErrorKind::deadline) own->turns.failed(id, why, out);
    perform(index_of(device), std::move(out));
  }
  flush();
}

void DeviceOperations::heard(uint32_t device, const std::vector<LauncherEvent>& events) {
  std::vector<LauncherEvent> in_doubt;
  {
    const Lock lock(mutex_);
    OwnDevice* const own = find(device);
    if (!own) return;
    for (const LauncherEvent& e : events) {
      if (e.kind != LauncherEvent::library_failed)
        heard(*own, device, e);
      else if (own->called.contains(e.operation.id))
        in_doubt.push_back(e);
    }
  }
  flush();
  if (!in_doubt.empty()) ask_members(device, std::move(in_doubt));
}

// The library often hears of the end of a process before this worker does, and does not say whose it is. All
// members are asked: the connection to the one that has ended breaks, or is silent, and it is named.
void DeviceOperations::ask_members(uint32_t device, std::vector<LauncherEvent> failed) {
  std::set<WorkerId> members;
  for (const LauncherEvent& e : failed)
    for (const WorkerDevice d : e.operation.members)
      if (d.worker != worker_.id()) members.insert(d.worker);
  const auto doubt = std::make_shared<Doubt>(Doubt{device, std::move(failed), members.size()});
  if (members.empty()) return settle(*doubt);
  const CallFrameScope neutral({&worker_});
  for (const WorkerId m : members)
    kThere.ask(worker_, m).on_ready([this, doubt, m](const Result<Value>& answer) {
      heard_of_member(*doubt, m, answer);
    });
}

void DeviceOperations::heard_of_member(Doubt& doubt, WorkerId member, const Result<Value>& answer) {
  if (!answer.ok() && answer.error().kind() == ErrorKind::disconnected) worker_lost(member, answer.error());
  {
    const Lock lock(mutex_);
    (answer.ok() ? doubt.there : doubt.silent).push_back(worker_.members().name_of(member));
    if (--doubt.open) return;
  }
  settle(doubt);
}

// All have answered, or have had their time. What a lost member was part of has been dropped.
void DeviceOperations::settle(const Doubt& doubt) {
  std::string who;
  if (!doubt.there.empty()) who += fmt::format("; {} answered", fmt::join(doubt.there, ", "));
  if (!doubt.silent.empty()) who += fmt::format("; {} did not answer", fmt::join(doubt.silent, ", "));
  {
    const Lock lock(mutex_);
    OwnDevice* const own = find(doubt.device);
    if (!own) return;
    for (const LauncherEvent& e : doubt.failed) {
      Out out;
      own->turns.failed(
          e.operation.id,
          Error(ErrorKind::failed,
                fmt::format("[nccl] {}: on cuda:{} of {} {}{}; NCCL_DEBUG=WARN makes it say more",
                            e.operation.brings, doubt.device, worker_.name(), e.text, who)),
          out);
      perform(doubt.device, std::move(out));
    }
  }
  flush();
}

void DeviceOperations::heard(OwnDevice& own, uint32_t device, const LauncherEvent& event) {
  const DeviceOperation& operation = event.operation;
  const auto called = own.called.find(operation.id);
  if (called == own.called.end()) return;
  Out out;
  switch (event.kind) {
    case LauncherEvent::ready:
      called->second.ready = true;
      own.turns.ready(operation, false, out);
      break;
    case LauncherEvent::made_id:
      for (const WorkerDevice d : operation.members) {
        if (d == operation.members.front()) continue;
        TurnsPacket packet{device, d.device, {.operation = {.id = operation.id}}, event.text};
        if (d.worker != worker_.id()) {
          put(d.worker, std::move(packet));
        } else if (OwnDevice* const other = find(d.device)) {
          other->thread->tell([id = operation.id, text = event.text](Launcher& l) { l.has_id(id, text); });
        }
      }
      break;
    case LauncherEvent::ended:
      own.turns.finished(operation.id);
      end(own, operation.id, {});
      break;
    case LauncherEvent::failed:
    case LauncherEvent::library_failed:
      own.turns.failed(operation.id,
                       Error(ErrorKind::failed, "[nccl] " + operation.brings + ": " + event.text), out);
      break;
  }
  perform(device, std::move(out));
}

// What turns say, and what follows from it for other devices of this worker.
void DeviceOperations::perform(uint32_t device, Out out) {
  std::deque<std::pair<uint32_t, Out>> todo;
  todo.emplace_back(device, std::move(out));
  while (!todo.empty()) {
    auto [index, now] = std::move(todo.front());
    todo.pop_front();
    OwnDevice* const own = find(index);
    if (!own) continue;
    for (auto& [to, message] : now.messages) {
      if (to.worker != worker_.id()) {
        put(to.worker, {index, to.device, std::move(message), ""});
      } else if (OwnDevice* const other = find(to.device)) {
        Out next;
        other->turns.receive({worker_.id(), index}, message, next);
        todo.emplace_back(to.device, std::move(next));
      }
    }
    perform_one(*own, now);
  }
}

void DeviceOperations::perform_one(OwnDevice& own, Out& out) {
  for (const DeviceOperation& operation : out.launches)
    own.thread->tell([id = operation.id](Launcher& l) { l.launch(id); });
  for (const Turns::Dropped& d : out.dropped) {
    own.thread->tell(
        [id = d.id, launched = d.launched](Launcher& l) { launched ? l.drop(id) : l.forget(id); });
    end(own, d.id, d.error);
  }
}

void DeviceOperations::end(OwnDevice& own, DeviceOperationId id, std::optional<Error> why) {
  auto called = own.called.extract(id);
  if (called.empty()) return;
  if (called.mapped().told == Told::at_once) return called.mapped().done(std::move(why));
  // Threads of turns and of devices do not call what others wrote.
  results_.post([done = std::move(called.mapped().done), why = std::move(why)] { done(why); });
}

DeviceOperations::Counts DeviceOperations::counts() const {
  const Lock lock(mutex_);
  Counts c;
  for (const auto& [index, own] : devices_) {
    c.operations += own->called.size();
    c.turns += own->turns.open();
  }
  return c;
}

}  // namespace troupe::internal::collective
