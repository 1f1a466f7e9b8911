// A trainer at its servers, dense or of a table: joins all of them, calls all of them, leaves.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "actors/worker/worker.h"
#include "core/async/future_combinators.h"
#include "core/base/error.h"
#include "parallel/server/client_options.h"
#include "parallel/server/server_base.h"
#include "rref/any_ref.h"
#include "rref/rref.h"

namespace troupe::internal::parallel {

using troupe::parallel::ClientOptions;
using troupe::parallel::Pushed;
using troupe::parallel::TrainerId;
using troupe::parallel::VersionStamp;

/// `what` starts the text: "[server]". Throws `invalid`.
inline void check_servers(size_t servers, const std::string& what) {
  if (servers == 0)
    throw_invalid(what + " no servers: it was made by default, and serve() gives a usable one");
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
  }
  (std::index_sequence_for<A...>());
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

/// What became of a push in all parts: the least version; late if it was in one.
Future<Pushed> joined(const std::vector<Future<Pushed>>& pushes);

/// What Client and TableClient have in common, S being Server or Table. For one actor or thread.
template <class S>
class ClientBase {
 public:
  /// Joins. `what` starts the text of errors: "[server]".
  ClientBase(std::vector<RRef<S>> servers, const ClientOptions& options, const std::string& what)
      : stamps(servers.size()), servers_(std::move(servers)), timeout_(options.timeout) {
    if (servers_.empty()) throw_invalid(what + " a client of no servers");
    actors::Worker& worker = servers_[0].worker();
    const uint64_t number = worker.next_number();
    who_ = {options.name.empty() ? next_client_path(worker) : options.name,
            uint64_t{worker.id()} << 32 | (number & 0xffffffff)};
    for (auto& server : servers_) {
      if (options.timeout) server = server.with_timeout(*options.timeout);
      joins_.push_back(server.template call<&S::join>(who_, worker.id()));
    }
  }
  ClientBase(const ClientBase&) = delete;

  Future<void> leave() {
    there_ = false;
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
        (void)AnyRef(servers_[i])
            .call(actors::method_name<&S::leave>(), arguments_of<S, &S::leave>(who_), {.one_way = true});
      } catch (const Error&) {  // the cluster has ended
      }
    }
  }

  /// Calls M(who, arguments...) on each server; arguments(i), a tuple, gives those for server i.
  template <auto M, class F>
  auto ask(const F& arguments) const {
    const auto call = [&](size_t i) {
      return std::apply(
          [&](auto&&... a) { return servers_[i].template call<M>(who_, std::forward<decltype(a)>(a)...); },
          arguments(i));
    };
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
  std::vector<RRef<S>> servers_;
  std::optional<Duration> timeout_;  // of calls; empty: the worker's
  TrainerId who_;
  bool there_ = true;
  // Kept: a call that nobody waits for may be cancelled.
  std::vector<Future<void>> joins_;
  std::vector<Future<Pushed>> pushes_;  // of the last push
};

}  // namespace troupe::internal::parallel
