#include "actors/cluster/join.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "core/base/log.h"
#include "net/address.h"

namespace troupe::internal::actors {
namespace {

/// w0 to all: the cluster ends.
constexpr Service<void(int code)> kShutDown{"cluster.shut_down"};

// By how much a worker waits longer than worker 0, which says who is missing.
constexpr Duration kAnswers = std::chrono::seconds(5);
// An attempt to connect that ends about now may still say why it failed.
constexpr Duration kLastWord = std::chrono::milliseconds(500);

double seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

// Seats are numbered from here on, or twice as far as the start has workers: launchers number from there.
constexpr WorkerId kFirstSeat = 1000;

// Of a newcomer and those that are there, on other hosts: which one cannot be reached; empty: all can.
// Everybody has reached worker 0.
std::string find_unreachable(const std::vector<Member>& there, const Member& newcomer) {
  for (const Member& other : there) {
    if (other.host == newcomer.host) continue;
    for (const Member* m : {&newcomer, &other}) {
      const auto& at = m->addresses;
      if (m->id == 0 || !std::all_of(at.begin(), at.end(), net::only_on_this_host)) continue;
      const Member& from = m == &other ? newcomer : other;
      return fmt::format(
          "[cluster] {} listens at {}, which only its own host can reach, and {} is on "
          "another one: set TROUPE_BIND for {} to the address of its host, as "
          "TROUPE_BIND=10.0.0.2",
          m->name, at.empty() ? "no address" : at.back(), from.name, m->name);
    }
  }
  return {};
}

}  // namespace

Coordinator::Coordinator(Worker& worker, Member self, uint32_t world, bool elastic, Invitation invitation)
    : worker_(worker),
      world_(world),
      elastic_(elastic),
      invitation_(std::move(invitation)),
      next_seat_(std::max(kFirstSeat, 2 * world)),
      admission_(worker),
      joined_(world, false),
      heard_(world, false) {
  worker_.members().add(std::move(self));
  joined_[0] = heard_[0] = true;
  kJoin.serve_later(worker_, [this](const auto& call, Member newcomer, uint32_t size, std::string program) {
    on_join(call, std::move(newcomer), size, program);
  });
  kSeat.serve(worker_, [this](const Invocation&) -> Seat {
    if (!elastic_)
      throw_invalid(
          "[cluster] this job takes in nobody after its start: start it with --elastic of troupe run");
    WorkerId seat = next_seat_++;
    while (worker_.members().find(seat)) seat = next_seat_++;
    return {seat, invitation_.job, invitation_.terms};
  });
  kLeave.serve_later(worker_, [this](const Ref<Invocation>& call) {
    if (!elastic_) throw_invalid("[cluster] is not elastic: nobody leaves before the end");
    admission_.leave(call);
  });
  worker_.on_lost().add([this](WorkerId id, const Error& why) {
    {
      Lock lock(mutex_);
      if (id >= world_ || !joined_[id]) return;
      heard_[id] = true;
    }
    give_up(why);  // without effect once all have joined
  });
  if (world == 1) complete_.set();
}

void Coordinator::on_join(const Ref<Invocation>& call, Member member, uint32_t world,
                          const std::string& program) {
  std::vector<Ref<Invocation>> ready;
  bool newcomer = false;
  if (member.id != call->from())
    throw_invalid("[cluster] a worker joins as another one than it said when it connected");
  const WorkerId id = member.id;
  std::string refusal;
  std::optional<Error> failed;
  {
    Lock lock(mutex_);
    if (!failed_) {
      const bool complete = std::find(joined_.begin(), joined_.end(), false) == joined_.end();
      newcomer = elastic_ && (complete || id >= world_);
      if (newcomer) {
        refusal = find_unreachable(worker_.members().all(), member);
        if (refusal.empty() && program != invitation_.program && !invitation_.program.empty() &&
            !program.empty())
          refusal = "[cluster] " + member.name +
                    " runs another program than w0, or another build of it: start it from the file that w0 "
                    "was started from, as it was then";
      } else if (id >= world_) {
        refusal = "[cluster] rank " + std::to_string(id) + " cannot join a cluster of " +
                  std::to_string(world_) + ": it is not elastic";
      } else if (world != world_ && !elastic_) {
        refusal = "[cluster] " + member.name + " was started for a cluster of " + std::to_string(world) +
                  " workers, this one has " + std::to_string(world_) +
                  ": give all nodes the same number of workers";
        refused_[id] = refusal;
      } else if (joined_[id]) {
        refusal = "[cluster] rank " + std::to_string(id) + " has joined already: is it used twice?";
      } else if (refusal = find_unreachable(worker_.members().all(), member); !refusal.empty()) {
        failed_.emplace(ErrorKind::invalid, refusal);
      } else {
        joined_[id] = true;
        worker_.members().add(std::move(member));
        waiting_.push_back(call);
        if (std::find(joined_.begin(), joined_.end(), false) == joined_.end()) ready.swap(waiting_);
      }
    }
    failed = failed_;
  }
  if (!refusal.empty()) {
    log::warning(refusal);
    if (!failed) throw_invalid(refusal);
  }
  if (failed) {
    call->fail(*failed);  // first: who waits for the meeting disconnects
    heard(id);
    return give_up(*failed);
  }
  if (newcomer) return admission_.join(call, std::move(member));
  if (ready.empty()) return;
  for (auto& c : ready) kJoin.answer(*c, roll(worker_));
  complete_.set();
}

void Coordinator::wait(Duration timeout, const Future<void>& stop) {
  const TimePoint deadline = worker_.clock().now() + timeout;
  Promise<void> news;
  complete_.future().on_ready([news](const Result<void>&) { news.set(); });
  if (stop.valid())
    stop.on_ready([news](const Result<void>& r) {
      if (!r.ok()) news.set();
    });
  if (news.future().wait_for(timeout)) {
    // Without effect if all are there.
    if (const auto* told = stop.valid() ? stop.peek() : nullptr; told && !told->ok()) give_up(told->error());
  } else {
    std::string missing, reasons;
    {
      Lock lock(mutex_);
      for (uint32_t i = 0; i < world_; ++i) {
        if (joined_[i]) continue;
        missing += (missing.empty() ? "w" : ", w") + std::to_string(i);
        if (const auto at = refused_.find(i); at != refused_.end()) reasons += "; " + at->second;
      }
    }
    if (!missing.empty())  // else the last one came just now
      give_up(
          Error(ErrorKind::deadline, fmt::format("[cluster] after {:g} s these workers have not joined: {}{}",
                                                 seconds(timeout), missing, reasons)));
  }
  complete_.future().get();
  // Nobody may hear of a worker from another one before it has the list.
  const auto left = std::max<Duration>(deadline - worker_.clock().now(), std::chrono::seconds(1));
  std::vector<Future<Value>> answers;
  for (const Member& m : worker_.members().all())
    if (m.id != worker_.id()) answers.push_back(kReady.within(left).ask(worker_, m.id));
  for (const auto& a : answers) a.get();
  admission_.open();
}

// All that wait hear why before their connections end, and blame nobody else: whoever has heard may go, and
// its loss is not the reason then.
void Coordinator::give_up(const Error& reason) {
  std::vector<Ref<Invocation>> waiting;
  Error why = reason;
  {
    Lock lock(mutex_);
    if (std::find(joined_.begin(), joined_.end(), false) == joined_.end()) return;
    if (failed_)
      why = *failed_;
    else
      failed_ = why;
    waiting.swap(waiting_);
  }
  for (const auto& call : waiting) {
    call->fail(why);
    heard(call->from());
  }
  heard(worker_.id());
  complete_.fail(why);
}

void Coordinator::heard(WorkerId id) {
  {
    Lock lock(mutex_);
    if (!failed_ || id >= world_) return;
    heard_[id] = true;
    if (std::find(heard_.begin(), heard_.end(), false) != heard_.end()) return;
  }
  all_heard_.set();
}

std::vector<std::pair<std::string, Error>> Coordinator::shut_down(int code, Duration grace) {
  std::vector<std::pair<std::string, Future<Value>>> answers;
  for (const Member& m : worker_.members().all())
    if (m.id != worker_.id()) answers.emplace_back(m.name, kShutDown.within(grace).ask(worker_, m.id, code));
  std::vector<std::pair<std::string, Error>> silent;  // they end by losing us
  for (const auto& [name, answer] : answers)
    if (const auto& result = answer.wait(); !result.ok()) silent.emplace_back(name, result.error());
  return silent;
}

Joiner::Joiner(Worker& worker, std::string program) : worker_(worker), program_(std::move(program)) {
  follow_admissions(worker_);
  kReady.serve_later(worker_, [this](const Ref<Invocation>& call) {
    complete_.future().on_ready([call](const Result<void>&) { kReady.answer(*call, {}); });
  });
  kShutDown.serve_later(worker_, [this](const Ref<Invocation>& call, int code) {
    if (call->from() != 0) throw_invalid("[cluster] only worker 0 ends the cluster");
    kShutDown.answer(*call, {});  // first: then this process may end
    ended_.set(code);
  });
}

void Joiner::join(const std::string& address, Member self, uint32_t world, Duration timeout,
                  const std::function<void(Member& self)>& connected) {
  worker_.on_lost().add([this](WorkerId id, const Error& why) {
    if (id == 0 && !leaving_) ended_.fail(why);
  });
  reach_driver(worker_, address, self.name, timeout);
  if (connected) connected(self);
  announce(self, world, timeout + kAnswers).get();
}

void reach_driver(Worker& worker, const std::string& address, const std::string& who, Duration timeout) {
  worker.members().add({0, "w0", host_identity(), {address}});
  const TimePoint deadline = worker.clock().now() + timeout;
  std::string last;  // why the last attempt failed
  for (;;) {         // one attempt of the transport may be shorter than what we are given
    const Duration left = deadline - worker.clock().now();
    const auto connection = worker.transport().connect(address, /*retry=*/true);
    if (connection.wait_for(left + kLastWord)) {
      const auto& r = connection.wait();
      if (r.ok()) {
        worker.adopt(0, r.value());
        return;
      }
      if (r.error().kind() != ErrorKind::disconnected) throw r.error();
      last = r.error().message();
    }
    if (const double rest = seconds(deadline - worker.clock().now()); rest > 0) {
      if (rest >= 1) log::warning(fmt::format("{} goes on trying for {:.0f} s: {}", who, rest, last));
      continue;
    }
    if (last.empty()) last = "nobody answers at " + address;
    throw_error(
        ErrorKind::disconnected,
        fmt::format("[cluster] {} has not reached worker 0 within {:g} s: {}", who, seconds(timeout), last));
  }
}

Future<void> Joiner::announce(const Member& self, uint32_t world, Duration timeout) {
  return kJoin.within(timeout).ask(worker_, 0, self, world, program_).then([this, self](const Roll& all) {
    take_roll(worker_, all);
    worker_.members().add(self);
    complete_.set();
  });
}

Future<void> Joiner::leave(int code) {
  CallFrameScope neutral({&worker_});
  ++leaving_;
  Promise<void> done;
  kLeave.ask(worker_, 0).on_ready([this, code, done](const Result<Value>& answer) {
    if (answer.ok()) ended_.set(code);
    --leaving_;
    if (const auto lost = worker_.members().loss(0)) ended_.fail(*lost);  // not if it has ended
    answer.ok() ? done.set() : done.fail(answer.error());
  });
  return done.future();
}

std::string machine_of(const std::string& host) { return host.substr(0, host.find('/')); }

std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code ignored;
  return boot + "/" + std::filesystem::read_symlink("/proc/self/ns/net", ignored).string();
}

}  // namespace troupe::internal::actors
