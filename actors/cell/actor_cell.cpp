#include "actors/cell/actor_cell.h"

#include <algorithm>

#include "actors/cell/suspension.h"
#include "core/base/fork.h"
#include "core/graph/autocast.h"

namespace troupe::internal::actors {

ActorCell::ActorCell(ActorHost& host, ObjectId id, const ActorType& type, uint64_t seed, std::string path)
    : host_(host),
      id_(id),
      type_(type),
      stream_(seed),
      path_(std::move(path)),
      methods_(type.methods.size() + host.actor_methods.size()),
      method_labels_(std::make_unique<std::atomic<const std::string*>[]>(methods_)),
      mailbox_(host.runtime.make_mailbox()) {
  label_ = object_name(type.name, id) + " on " + host.name;
  const size_t kinds = methods_ + 1;
  histories_ = std::make_unique<DispatchHistory[]>(kinds);
  of_type_ = host.live_cells.histories(type, kinds + 2);
  for (size_t i = 0; i < kinds; ++i) histories_[i].begin_like(of_type_[i]);
  host.live_cells.made();
}

ActorCell::~ActorCell() {
  object_.reset();  // released without a job only if the worker never started it
  for (size_t i = 0; i < methods_; ++i) delete method_labels_[i].load();
  host_.live_cells.retire(type_, handled());
  delete[] tallies_.load();
  host_.live_cells.destroyed();
}

std::string ActorCell::place() const { return host_.name + " (" + object_name(type_.name, id_) + ")"; }

const std::string& ActorCell::make_label(size_t index) const {
  const std::string& name = method(index).name;
  const bool own = index < type_.methods.size();
  auto made = std::make_unique<const std::string>((own ? type_.name + "::" + name : name) + " on " + place());
  const std::string* other = nullptr;  // of a thread that was quicker
  return method_labels_[index].compare_exchange_strong(other, made.get()) ? *made.release() : *other;
}

int64_t ActorCell::count(const std::string& kind) {
  Lock lock(counts_mutex_);
  return counts_[kind]++;
}

size_t ActorCell::find_method(uint64_t id) const {
  for (size_t i = 0; i < methods_; ++i)
    if (method(i).id == id) return i;
  return kUnknown;
}

const ActorType::Method& ActorCell::method(size_t index) const {
  const size_t own = type_.methods.size();
  return index < own ? type_.methods[index] : host_.actor_methods[index - own];
}

void ActorCell::construct(ActorType::Constructor::Make make, ValueList args) {
  DispatchHistory& history = of_type_[methods_ + 1];
  post(
      [this, &history, make, args = std::move(args)]() mutable {
        const TimePoint start = host_.clock.now();
        try {
          const ThreadModeScope plain({true, Autocast::off});  // wherever it runs
          const ConstructionScope scope(std::make_shared<MadeParts>(), this);
          object_ = make(std::move(args));
        } catch (...) {
          failure_ = current_error().crossing("constructor of " + type_.name + " on " + place());
          host_.unheard.failed(id_, kUnmade, *failure_);
        }
        history.note(host_.clock.now() - start);
      },
      history.where(), "its constructor");
}

HandledTally* ActorCell::make_tallies() {
  auto* const made = new HandledTally[methods_ + 1];
  tallies_.store(made, std::memory_order_release);
  return made;
}

std::vector<HandledCount> ActorCell::handled() const {
  std::vector<HandledCount> out;
  if (const HandledTally* all = tallies_.load(std::memory_order_acquire))
    for (size_t i = 0; i <= methods_; ++i) out.push_back(all[i].read());
  return out;
}

Actor& ActorCell::object() {
  if (failure_) throw *failure_;
  if (!object_ || released_) throw_invalid("[call] actor " + label_ + " was released");
  return *object_;
}

void ActorCell::deliver(Ref<Invocation> invocation) {
  const size_t index = invocation->method();
  DispatchTarget where = method(index).blocks ? DispatchTarget::pool : histories_[index].where();
  if (host_.dispatch == Dispatch::caller) where = DispatchTarget::caller;
  arrived_.fetch_add(1, std::memory_order_relaxed);
  mailbox_->post(std::move(invocation), where);
}

void ActorCell::post(std::function<void()> job, DispatchTarget where, const char* what) {
  if (host_.dispatch == Dispatch::caller) where = DispatchTarget::caller;
  CallFrame at = frame().for_later();
  at.worker = &host_.worker;
  at.actor = this;
  at.what = &label_;
  at.seed_stream = &stream_;
  at.nodes = &nodes_;
  at.device_stream = device_stream_;
  mailbox_->post(make_job([self = shared_from_this(), busy = Traffic::Busy(host_.traffic), at,
                           job = std::move(job), what]() mutable {
                   CallFrameScope scope(at);
                   std::optional<CurrentActivity::Scope> activity;
                   if (what) activity.emplace(self->activity_, what, nullptr, self->host_.clock.now());
                   job();
                   end_refused_child(self->label_.c_str());  // one that it forked
                 }),
                 where);
}

void ActorCell::add_suspension(std::weak_ptr<Suspension> suspension) {
  {
    Lock lock(suspensions_mutex_);
    if (!cancelled_) {
      if (suspensions_.size() >= prune_at_) {
        std::erase_if(suspensions_, [](const auto& s) { return s.expired(); });
        prune_at_ = std::max<size_t>(16, 2 * suspensions_.size());
      }
      suspensions_.push_back(std::move(suspension));
      return;
    }
  }
  if (auto s = suspension.lock())
    s->cancel(Error(ErrorKind::cancelled, "[call] worker " + host_.name + " is shutting down"));
}

void ActorCell::cancel_suspensions(const Error& why) {
  std::vector<std::weak_ptr<Suspension>> waiting;
  {
    Lock lock(suspensions_mutex_);
    cancelled_ = true;
    waiting.swap(suspensions_);
  }
  for (auto& w : waiting)
    if (auto s = w.lock()) s->cancel(why);
}

void ActorCell::release() {
  DispatchHistory& history = of_type_[methods_ + 2];
  post(
      [this, &history] {
        released_ = true;
        if (in_use_ > 0) return;
        const TimePoint start = host_.clock.now();
        destroy();
        history.note(host_.clock.now() - start);
      },
      // Not on a thread of the program that lets go: it may hold a lock that the destructor wants.
      frame().callback ? history.where() : DispatchTarget::pool);
}

void ActorCell::note_duration(size_t method, Duration took) {
  if (histories_[method].is_new()) of_type_[method].note(took);
  histories_[method].note(took);
}

void ActorCell::destroy() {
  if (failure_) host_.unheard.gone(id_);
  decltype(kept_) kept;  // what is kept goes first, without the lock
  {
    const Lock lock(kept_mutex_);
    kept.swap(kept_);
  }
  kept.clear();
  object_.reset();
}

void ActorCell::post_adaptive(std::function<void()> job) {
  const size_t kind = methods_;
  post(
      [this, kind, job = std::move(job)] {
        const TimePoint start = host_.clock.now();
        AtWork at_work(*this, kind, start);
        tally(kind).began(Duration(0));
        job();
        const TimePoint end = host_.clock.now();
        at_work.until(end);
        note_duration(kind, end - start);
      },
      histories_[kind].where(), "its part of a backward pass");
}

std::shared_ptr<ActorCell> current_cell() {
  auto* cell = frame().actor.get();
  return cell ? cell->shared_from_this() : nullptr;
}

InUse::InUse(std::shared_ptr<ActorCell> cell) : cell_(std::move(cell)) { ++cell_->in_use_; }

InUse::~InUse() {
  if (cell_ && --cell_->in_use_ == 0 && cell_->released_) cell_->destroy();
}

}  // namespace troupe::internal::actors
