// Pool<T>: actors that do the same work under supervision: whoever is lost is made again elsewhere.
#pragma once
#include <condition_variable>
#include <deque>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/async/future_combinators.h"
#include "troupe/pool/pool_core.h"

namespace troupe {

template <class T>
class Pool;

/// A place in a pool: after a restart it is the new actor.
template <class T>
class PoolMember {
 public:
  /// Pool::call(), to this member; waits for its restart.
  template <auto M, class... A>
  auto call(A&&... args) const {
    return pool_->template call_at<M>(index_, std::forward<A>(args)...);
  }
  size_t index() const { return index_; }
  /// How often it was started anew.
  int64_t incarnation() const { return pool_->core_->incarnation(index_); }
  /// The actor as it is now. A reference that is kept stays with that incarnation, and fails when it is lost.
  RRef<T> ref() const { return pool_->core_->member(index_).template as<T>(); }

 private:
  friend class Pool<T>;
  PoolMember(const Pool<T>* pool, size_t index) : pool_(pool), index_(index) {}
  const Pool<T>* pool_;
  size_t index_;
};

/// What as_they_come() gives.
template <class R>
struct Arrived {
  size_t index;  ///< of the task
  R value;
};

/// Results in the order in which they come. Of one thread.
template <class R>
class Arrivals {
 public:
  explicit Arrivals(const std::vector<Future<R>>& futures);
  /// The next one; empty behind the last. Blocks. Throws the error of a task, whose number its trail has; the
  /// others come all the same.
  std::optional<Arrived<R>> next();

  class Iterator {
   public:
    explicit Iterator(Arrivals* all = nullptr) : all_(all) { ++*this; }
    const Arrived<R>& operator*() const& { return *now_; }
    Iterator& operator++() {
      if (all_ && !(now_ = all_->next())) all_ = nullptr;
      return *this;
    }
    bool operator==(const Iterator& o) const { return all_ == o.all_; }

   private:
    Arrivals* all_;
    std::optional<Arrived<R>> now_;
  };
  Iterator begin() & { return Iterator(this); }
  Iterator end() const& { return Iterator(); }

 private:
  struct Came {
    internal::Mutex mutex;
    std::condition_variable changed;
    std::deque<size_t> ready TROUPE_GUARDED_BY(mutex);
  };
  std::vector<Future<R>> futures_;
  size_t told_ = 0;
  std::shared_ptr<Came> came_ = std::make_shared<Came>();
};

/// Members are actors of type T, made with the same arguments, on the workers that are named. Thread-safe; of
/// the cluster's driver, before whose end it ends. Nothing is recorded for gradients.
///
///   Pool<Rollout> pool(cluster, {.size = 8}, "maze");
///   pool.on_start([&](const RRef<Rollout>& r) { r.call<&Rollout::load>(newest).get(); });
///   for (auto& [task, reward] : pool.as_they_come<&Rollout::run>(seeds)) ...
///
/// A member whose worker is lost, or whose constructor throws, is made again with the same arguments on
/// another worker (RestartPolicy): it begins anew, and on_start() says what it is to know. A call that was
/// under way there fails with `disconnected`, unless its method may run twice (again()); one that comes
/// meanwhile waits.
template <class T>
class Pool {
 public:
  template <class... A>
  Pool(Cluster& cluster, const PoolOptions& options, A&&... args)
      : core_(internal::PoolCore::create(
            cluster, options, std::string(internal::actors::type_name<T>()),
            [here = cluster.here(),
             all = std::tuple<std::decay_t<A>...>(std::forward<A>(args)...)](const std::string& worker) {
              return std::apply(
                  [&](const auto&... a) { return AnyRef(here.template spawn<T>(worker, a...)); }, all);
            })) {}
  ~Pool() {
    if (core_) core_->end();
  }
  Pool(Pool&&) = delete;

  size_t size() const { return core_->size(); }
  PoolMember<T> operator[](size_t i) const {
    (void)core_->incarnation(i);
    return PoolMember<T>(this, i);
  }

  /// Calls method M of whoever is free; in the order of calls.
  template <auto M, class... A>
  auto call(A&&... args) const {
    return add<M>(std::nullopt, std::forward<A>(args)...);
  }
  /// Calls method M of each member; the results in the order of members.
  template <auto M, class... A>
  auto each(const A&... args) const {
    std::vector<decltype(call<M>(args...))> all_of_them;
    for (size_t i = 0; i < size(); ++i) all_of_them.push_back(call_at<M>(i, args...));
    return all(all_of_them);
  }
  /// Calls method M with each of the tasks: an argument, or a tuple of all.
  template <auto M, class Task>
  auto as_they_come(const std::vector<Task>& tasks) const {
    using Given = decltype(call_with<M>(tasks.front()));
    std::vector<Given> futures;
    for (const Task& task : tasks) futures.push_back(call_with<M>(task));
    return Arrivals<typename Given::value_type>(futures);
  }

  /// Calls of M that were under way at a member that was lost are made again at another one, so often each:
  /// whoever writes that says that twice does no harm.
  template <auto M>
  Pool& again(int times = 3) {
    const internal::Lock lock(mutex_);
    again_[std::string(internal::actors::method_name<M>())] = times;
    return *this;
  }
  /// `f(member's RRef<T>)` runs before a member takes its first call, and again for each incarnation, on a
  /// thread of the pool; it may wait. What it throws counts as a loss. Said before the first call.
  template <class F>
  Pool& on_start(F f) {
    core_->on_start([f = std::move(f)](size_t, const AnyRef& actor) { f(actor.template as<T>()); });
    return *this;
  }
  /// `f(member's number, name of the worker)` when one was lost. It must not block.
  template <class F>
  Pool& on_lost(F f) {
    core_->on_lost(std::move(f));
    return *this;
  }

 private:
  friend class PoolMember<T>;
  template <auto M, class Task>
  auto call_with(const Task& task) const {
    if constexpr (requires { std::tuple_size<Task>::value; })
      return std::apply([&](const auto&... a) { return call<M>(a...); }, task);
    else
      return call<M>(task);
  }
  template <auto M, class... A>
  auto call_at(size_t i, A&&... args) const {
    return add<M>(i, std::forward<A>(args)...);
  }
  int times(const std::string& method) const {
    const internal::Lock lock(mutex_);
    const auto at = again_.find(method);
    return at == again_.end() ? 0 : at->second;
  }

  template <auto M, class... A>
  auto add(std::optional<size_t> member, A&&... args) const {
    using Result =
        decltype(std::declval<RRef<T>>().template call<M>(std::declval<const std::decay_t<A>&>()...));
    using R = typename Result::value_type;
    const Promise<R> promise;
    auto result = promise.future();
    const std::string method(internal::actors::method_name<M>());
    internal::PoolCore::Work work;
    work.label = core_->type() + "::" + method;
    work.fail = [promise](const Error& e) { promise.fail(e); };
    work.to = [promise, timeout = core_->options().timeout,
               all = std::make_tuple(std::decay_t<A>(std::forward<A>(args))...)](
                  const AnyRef& actor, const internal::PoolCore::Work::Ended& ended) {
      if (!promise.wanted()) return (void)ended(nullptr);  // its future was dropped while it waited
      const GradMode no_gradients(false);
      RRef<T> to = actor.as<T>();
      if (timeout) to = to.with_timeout(*timeout);
      Result given;
      try {
        given = std::apply([&](const auto&... a) { return to.template call<M>(a...); }, all);
      } catch (...) {
        const Error why = current_error();
        if (!ended(&why)) promise.fail(why);
        return;
      }
      promise.waits_for(given.as_source());
      given.watch([promise, ended](const troupe::Result<R>& r) {
        if (!ended(r.ok() ? nullptr : &r.error())) promise.complete(r);
      });
    };
    core_->add(std::move(work), member, times(method));
    return result;
  }

  mutable internal::Mutex mutex_;
  std::map<std::string, int> again_ TROUPE_GUARDED_BY(mutex_);
  const std::shared_ptr<internal::PoolCore> core_;
};

template <class R>
Arrivals<R>::Arrivals(const std::vector<Future<R>>& futures) : futures_(futures) {
  for (size_t i = 0; i < futures_.size(); ++i)
    futures_[i].watch([came = came_, i](const Result<R>&) {
      {
        const internal::Lock lock(came->mutex);
        came->ready.push_back(i);
      }
      came->changed.notify_one();
    });
}

template <class R>
std::optional<Arrived<R>> Arrivals<R>::next() {
  check_may_block("as_they_come()");
  if (told_ == futures_.size()) return std::nullopt;
  size_t index = 0;
  {
    internal::Lock lock(came_->mutex);
    came_->changed.wait(lock.native(), [&]() TROUPE_REQUIRES(came_->mutex) { return !came_->ready.empty(); });
    index = came_->ready.front();
    came_->ready.pop_front();
  }
  ++told_;
  return Arrived<R>{index, futures_[index].get()};
}

}  // namespace troupe
