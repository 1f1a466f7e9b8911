#include "actors/join.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "actors/codec.h"

namespace troupe::actors {
namespace {

// Of a member and the size of its cluster; answered with all members once all are there.
constexpr const char* kJoin = "cluster.join";
constexpr const char* kLeave = "cluster.leave";         // answered when nobody takes it for a loss
constexpr const char* kShutDown = "cluster.shut_down";  // exit code

}  // namespace

Coordinator::Coordinator(Worker& worker, Member self, uint32_t world, bool elastic)
    : worker_(worker), world_(world), elastic_(elastic), admission_(worker), joined_(world, false) {
  worker_.members().add(std::move(self));
  joined_[0] = true;
  worker_.add_service(kJoin, [this](const Ref<Invocation>& call) { on_join(call); });
  worker_.add_service(kLeave, [this](const Ref<Invocation>& call) {
    if (!elastic_) throw_invalid("[cluster] is not elastic: nobody leaves before the end");
    admission_.leave(call);
  });
  worker_.on_lost([this](WorkerId id, const Error& why) {
    std::lock_guard lock(mutex_);
    if (id < world_ && joined_[id]) complete_.fail(why);  // without effect once all have joined
  });
  if (world == 1) complete_.set();
}

void Coordinator::on_join(const Ref<Invocation>& call) {
  auto [value, world] = ListCodec<Value, uint32_t>::from(std::move(call->call().args), kJoin);
  Member member = Member::from_value(std::move(value));
  std::vector<Ref<Invocation>> ready;
  bool newcomer = false;
  {
    std::lock_guard lock(mutex_);
    if (member.id != call->from())
      throw_invalid("[cluster] a worker joins as another one than it said when it connected");
    const bool complete = std::find(joined_.begin(), joined_.end(), false) == joined_.end();
    newcomer = elastic_ && (complete || member.id >= world_);
    if (!newcomer) {
      if (member.id >= world_)
        throw_invalid("[cluster] rank " + std::to_string(member.id) + " cannot join a cluster of " +
                      std::to_string(world_) + ": it is not elastic");
      if (world != world_ && !elastic_)
        throw_invalid("[cluster] " + member.name + " was started for a cluster of " + std::to_string(world) +
                      " workers, this one has " + std::to_string(world_) +
                      ": give all nodes the same number of workers");
      if (joined_[member.id])
        throw_invalid("[cluster] rank " + std::to_string(member.id) +
                      " has joined already: is it used twice?");
      joined_[member.id] = true;
      worker_.members().add(std::move(member));
      waiting_.push_back(call);
      if (std::find(joined_.begin(), joined_.end(), false) == joined_.end()) ready.swap(waiting_);
    }
  }
  if (newcomer) return admission_.join(call, std::move(member));
  if (ready.empty()) return;
  for (auto& c : ready) c->complete(roll(worker_));
  complete_.set();
}

void Coordinator::wait(Duration timeout) {
  const TimePoint deadline = worker_.clock().now() + timeout;
  if (complete_.future().wait_for(timeout)) {
    complete_.future().get();
    // Nobody may hear of a worker from another one before it has the list.
    const auto left = std::max<Duration>(deadline - worker_.clock().now(), std::chrono::seconds(1));
    std::vector<Future<Value>> answers;
    for (const Member& m : worker_.members().all())
      if (m.id != worker_.id()) answers.push_back(worker_.call_service(m.id, kReady, {}, {.timeout = left}));
    for (const auto& a : answers) a.get();
    admission_.open();
    return;
  }
  std::string missing;
  std::lock_guard lock(mutex_);
  for (uint32_t i = 0; i < world_; ++i)
    if (!joined_[i]) missing += (missing.empty() ? "w" : ", w") + std::to_string(i);
  throw_error(ErrorKind::deadline,
              "[cluster] after " +
                  std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count()) +
                  " ms these workers have not joined: " + missing);
}

std::vector<std::pair<std::string, Error>> Coordinator::shut_down(int code, Duration grace) {
  FrameScope neutral({&worker_});
  std::vector<std::pair<std::string, Future<Value>>> answers;
  for (const Member& m : worker_.members().all())
    if (m.id != worker_.id())
      answers.emplace_back(m.name, worker_.call_service(m.id, kShutDown, {Value(static_cast<int64_t>(code))},
                                                        {.timeout = grace}));
  std::vector<std::pair<std::string, Error>> silent;  // they end by losing us
  for (const auto& [name, answer] : answers)
    if (const auto& result = answer.wait(); !result.ok()) silent.emplace_back(name, result.error());
  return silent;
}

Joiner::Joiner(Worker& worker) : worker_(worker) {
  follow_admissions(worker_);
  worker_.add_service(kReady, [this](const Ref<Invocation>& call) {
    complete_.future().on_ready([call](const Result<void>&) { call->complete(Value()); });
  });
  worker_.add_service(kShutDown, [this](const Ref<Invocation>& call) {
    auto [code] = ListCodec<int>::from(std::move(call->call().args), kShutDown);
    if (call->from() != 0) throw_invalid("[cluster] only worker 0 ends the cluster");
    call->complete(Value());
    ended_.set(code);
  });
}

void Joiner::join(const std::string& address, const Member& self, uint32_t world, Duration timeout) {
  worker_.members().add({0, "w0", host_identity(), {address}});
  worker_.on_lost([this](WorkerId id, const Error& why) {
    if (id == 0 && !leaving_) ended_.fail(why);
  });
  const TimePoint deadline = worker_.clock().now() + timeout;
  for (;;) {  // one attempt of the transport may be shorter than what we are given
    const auto connection = worker_.transport().connect(address, /*retry=*/true);
    if (const auto& r = connection.wait(); r.ok()) {
      worker_.adopt(0, r.value());
      break;
    } else if (r.error().kind() != ErrorKind::disconnected || worker_.clock().now() >= deadline) {
      throw r.error();
    }
  }
  const auto left = std::max<Duration>(deadline - worker_.clock().now(), std::chrono::milliseconds(1));
  announce(self, world, left).get();
}

Future<void> Joiner::announce(const Member& self, uint32_t world, Duration timeout) {
  return worker_.call_service(0, kJoin, {self.to_value(), Value(int64_t{world})}, {.timeout = timeout})
      .then([this, self](Value all) {
        take_roll(worker_, std::move(all));
        worker_.members().add(self);
        complete_.set();
      });
}

Future<void> Joiner::leave(int code) {
  FrameScope neutral({&worker_});
  ++leaving_;
  Promise<void> done;
  worker_.call_service(0, kLeave, {}).on_ready([this, code, done](const Result<Value>& answer) {
    if (answer.ok()) ended_.set(code);
    --leaving_;
    if (const auto lost = worker_.members().loss(0)) ended_.fail(*lost);  // not if it has ended
    answer.ok() ? done.set() : done.fail(answer.error());
  });
  return done.future();
}

std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code ignored;
  return boot + "/" + std::filesystem::read_symlink("/proc/self/ns/net", ignored).string();
}

}  // namespace troupe::actors
