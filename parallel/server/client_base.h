// A trainer at its servers, dense or of a table: joins all of them, calls all of them, leaves.
#pragma once
#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "actors/worker/worker.h"
#include "core/async/future_combinators.h"
#include "core/base/call_frame.h"
#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/graph/autocast.h"
#include "parallel/server/client_options.h"
#include "parallel/server/server_base.h"
#include "rref/any_ref.h"
#include "rref/here.h"
#include "rref/ref_table.h"
#include "rref/rref.h"

namespace troupe::internal::parallel {

using troupe::parallel::ClientOptions;
using troupe::parallel::Pushed;
using troupe::parallel::ServerOptions;
using troupe::parallel::TrainerId;
using troupe::parallel::VersionStamp;

/// `what` starts the text: "[server]". Throws `invalid`.
inline void check_servers(size_t servers, const std::string& what) {
  if (servers == 0)
    throw_invalid(what + " no servers: it was made by default, and serve() gives a usable one");
}

inline bool is_lost(const AnyRef& actor) { return bool(actor.worker().members().absence(actor.owner())); }

/// The servers, or their backups, where they are lost. `served`: a Served or ServedTable.
template <class Served>
auto servers_now(const Served& served) {
  auto now = served.servers;
  for (size_t i = 0; i < served.backups.size(); ++i)
    if (is_lost(now[i])) now[i] = served.backups[i];
  return now;
}

/// The place of backups; empty without a name. `invalid` for a worker that has servers.
inline std::optional<Place> place_of_backup(const Here& here, const std::string& name,
                                            const std::vector<Place>& servers, const std::string& what) {
  if (name.empty()) return std::nullopt;
  const auto& members = here.table().worker().members();
  const WorkerId id = Place(name).in(members);
  for (const Place& p : servers)
    if (p.in(members) == id)
      throw_invalid(what + " a backup on " + name +
                    ", which has servers itself, and would be lost with them; expected another worker");
  return Place(members.name_of(id));
}

/// Makes S(start, options) on that worker, and its backup, if there is one.
template <class S, class Served, class Start>
void serve_at(const Here& here, Served& served, const Place& where, const std::optional<Place>& backup,
              const Start& start, const ServerOptions& options) {
  if (!backup) return served.servers.push_back(here.spawn<S>(where, start, options));
  actors::Worker& worker = here.table().worker();
  const WorkerId first = where.in(worker.members());
  served.backups.push_back(
      here.spawn<S>(*backup, start, options, troupe::parallel::ServerPair{.first = first}));
  const AnyRef second = served.backups.back();
  const rref::RefTable::SpawnAs as(here.table(), second.handle()->path());
  served.servers.push_back(
      here.spawn<S>(where, start, options, troupe::parallel::ServerPair{.backup = second}));
  troupe::parallel::note_backup(worker, second.handle()->path(), first, second.owner());
}

/// Calls M(args...) on each server; `invalid` if there is none.
template <auto M, class S, class... A>
auto ask_all(const std::vector<RRef<S>>& servers, const A&... args) {
  check_servers(servers.size(), "[server]");
  std::vector<decltype(servers[0].template call<M>(args...))> asked;
  asked.reserve(servers.size());
  for (const auto& server : servers) asked.push_back(server.template call<M>(args...));
  return all(asked);
}

/// Arguments of the listed method M of S, as they travel.
template <class S, auto M, class... A>
ValueList arguments_of(const A&... args) {
  static_assert(rref::check_call<S, M, A...>());
  using Params = typename actors::MethodTraits<decltype(M)>::Tuple;
  return [&]<size_t... I>(std::index_sequence<I...>) {
    return ValueList{rref::argument<std::tuple_element_t<I, Params>>(args)...};
  }(std::index_sequence_for<A...>());
}

/// The same as ask_all() for what changes something: all servers handle it, whatever becomes of the future.
template <auto M, class S, class... A>
Future<void> change_all(const std::vector<RRef<S>>& servers, std::optional<Duration> timeout, const A&... a) {
  check_servers(servers.size(), "[server]");
  const ValueList args = arguments_of<S, M>(a...);
  const char* method = actors::method_name<M>();
  std::vector<Future<Value>> told;
  told.reserve(servers.size());
  for (const auto& server : servers) {
    try {
      told.push_back(AnyRef(server).call(method, args, {.timeout = timeout, .uncancellable = true}));
    } catch (...) {
      told.push_back(Future<Value>::failed(current_error()));
    }
  }
  return all(told).then([](const ValueList&) {});
}

/// The path of the client that the current actor, or the program, makes next: "Trainer#1/client#0".
std::string next_client_path(actors::Worker& worker);

/// Calls of a server in their order, so that those that it lost are made again in that order. Thread-safe.
class CallsInLine {
 public:
  using Place = std::list<std::optional<std::function<void()>>>::iterator;
  Place enter();
  /// It is answered; or `again`, which is called when all before it are answered, or made again.
  void leave(Place place, std::function<void()> again);
  std::atomic<uint64_t> heard{0};  ///< number of the last that was answered

 private:
  Mutex mutex_;
  std::list<std::optional<std::function<void()>>> line_ TROUPE_GUARDED_BY(mutex_);
  bool moves_ TROUPE_GUARDED_BY(mutex_) = false;
};

/// What became of a push in all parts: the least version; late if it was in one.
Future<Pushed> joined(const std::vector<Future<Pushed>>& pushes);

/// What Client and TableClient have in common, S being Server or Table. For one actor or thread.
template <class S>
class ClientBase {
 public:
  /// Joins. `what` starts the text of errors: "[server]".
  ClientBase(std::vector<RRef<S>> servers, std::vector<RRef<S>> backups, const ClientOptions& options,
             const std::string& what)
      : stamps(servers.size()),
        servers_(std::move(servers)),
        backups_(std::move(backups)),
        timeout_(options.timeout) {
    if (servers_.empty()) throw_invalid(what + " a client of no servers");
    actors::Worker& worker = servers_[0].worker();
    const uint64_t number = worker.next_number();
    who_ = {options.name.empty() ? next_client_path(worker) : options.name,
            uint64_t{worker.id()} << 32 | (number & 0xffffffff)};
    for (auto* some : {&servers_, &backups_})
      for (auto& server : *some)
        if (options.timeout) server = server.with_timeout(*options.timeout);
    for (size_t i = 0; i < backups_.size(); ++i) lines_.push_back(std::make_shared<CallsInLine>());
    for (size_t i = 0; i < servers_.size(); ++i)
      joins_.push_back(at<&S::join>(i, std::tuple(who_, worker.id())));
  }
  ClientBase(const ClientBase&) = delete;

  Future<void> leave() {
    there_ = false;
    if (!backups_.empty()) {
      for (size_t i = 0; i < servers_.size(); ++i) left_.push_back(at<&S::leave>(i, std::tuple(who_)));
      return all(left_).then([](const std::vector<Unit>&) {});
    }
    return change_all<&S::leave>(servers_, timeout_, who_);
  }
  /// Leaves without waiting, unless it has left.
  void part() {
    if (!std::exchange(there_, false)) return;
    for (size_t i = 0; i < servers_.size(); ++i) {
      const auto* joined = joins_[i].peek();
      if (joined && !joined->ok()) continue;  // it never was there
      if (!joined)
        joins_[i].on_ready([](const Result<void>&) {});  // a cancelled one would leave nobody to leave
      try {
        (void)AnyRef(there(i)).call(actors::method_name<&S::leave>(), arguments_of<S, &S::leave>(who_),
                                    {.one_way = true});
      } catch (const Error&) {  // the cluster has ended
      }
    }
  }

  /// Calls M(who, arguments...) on each server; arguments(i), a tuple, gives those for server i.
  template <auto M, class F>
  auto ask(const F& arguments) {
    if (!backups_.empty()) ++who_.call;
    const auto call = [&](size_t i) { return at<M>(i, std::tuple_cat(std::tuple(who_), arguments(i))); };
    std::vector<decltype(call(0))> asked;
    asked.reserve(servers_.size());
    for (size_t i = 0; i < servers_.size(); ++i) asked.push_back(call(i));
    return asked;
  }
  /// The same for a push. watch(i), if there is one, is called with the result of server i before anybody who
  /// waits for the push goes on.
  template <auto M, class F>
  Future<Pushed> push(const F& arguments,
                      const std::function<void(size_t, const Result<Pushed>&)>& watch = nullptr) {
    pushes_ = ask<M>(arguments);
    for (size_t i = 0; watch && i < pushes_.size(); ++i)
      pushes_[i].watch([watch, i](const Result<Pushed>& result) { watch(i, result); });
    return joined(pushes_);
  }
  /// Calls M as ask() does, where it changes nothing: it is not made again at a backup, as what the lost
  /// server knew is lost, too.
  template <auto M, class F>
  auto look(const F& arguments) {
    const auto call = [&](size_t i) {
      return std::apply([&](const auto&... a) { return there(i).template call<M>(who_, a...); },
                        arguments(i));
    };
    std::vector<decltype(call(0))> asked;
    asked.reserve(servers_.size());
    for (size_t i = 0; i < servers_.size(); ++i) asked.push_back(call(i));
    return asked;
  }

  /// Goes on from what it had been told. `invalid` if it is of another number of servers.
  void load_stamps(std::vector<VersionStamp> saved) {
    if (saved.size() != stamps.size())
      throw_invalid("[server] the checkpoint has a trainer of " + std::to_string(saved.size()) +
                    " servers; here are " + std::to_string(stamps.size()));
    stamps = std::move(saved);
  }

  const std::string& name() const& { return who_.name; }
  std::string name() && { return std::move(who_.name); }

  std::vector<VersionStamp> stamps;  ///< of each server: what its last pull said

 private:
  const RRef<S>& there(size_t i) {
    if (!backups_.empty() && is_lost(servers_[i])) servers_[i] = backups_[i];
    return servers_[i];
  }
  /// A call of server i, which is made again at its backup if that server is lost in it.
  template <auto M, class Args>
  auto at(size_t i, Args args) {
    const auto call = [](const RRef<S>& server, const Args& arguments) {
      return std::apply([&](const auto&... a) { return server.template call<M>(a...); }, arguments);
    };
    if (backups_.empty()) return call(servers_[i], args);
    using Called = decltype(call(servers_[i], args));
    using T = typename Called::value_type;
    const RRef<S> server = there(i);
    const auto line = lines_[i];
    const auto place = line->enter();
    Promise<T> promise;
    const uint64_t number = who_.call;
    const auto again = [call, line, backup = backups_[i], args, promise, modes = ThreadModes{grad_enabled()},
                        context = frame().context]() mutable {
      CallFrame in = frame();
      in.context = context;
      const CallFrameScope scope(in);
      const ThreadModeScope mode(modes);
      std::get<0>(args).heard = line->heard;
      try {
        const Called second = call(backup, args);
        promise.waits_unless_ready(second);
        second.watch([promise](const Result<T>& r) mutable { (void)promise.complete(r); });
      } catch (...) {
        (void)promise.complete(Result<T>(current_error()));
      }
    };
    const Future<T> answer = promise.future();
    if (server == backups_[i]) {
      line->leave(place, again);
      return answer;
    }
    const auto answered = [server, line, place, again, promise, number](const Result<T>& r) {
      const bool lost = !r.ok() && r.error().kind() == ErrorKind::disconnected && is_lost(server);
      if (r.ok() && number > line->heard) line->heard = number;
      line->leave(place, lost ? std::function<void()>(again) : nullptr);
      if (!lost) (void)promise.complete(r);
    };
    try {
      const Called first = call(server, args);
      promise.waits_unless_ready(first);
      first.watch(answered);
    } catch (...) {  // it is known to be lost by now
      answered(Result<T>(current_error()));
    }
    return answer;
  }

  std::vector<RRef<S>> servers_, backups_;           // backups_: none, or one for each
  std::vector<std::shared_ptr<CallsInLine>> lines_;  // of each that has one
  std::optional<Duration> timeout_;                  // of calls; empty: the worker's
  TrainerId who_;
  bool there_ = true;
  // Kept: a call that nobody waits for may be cancelled.
  std::vector<Future<void>> joins_, left_;
  std::vector<Future<Pushed>> pushes_;  // of the last push
};

}  // namespace troupe::internal::parallel
