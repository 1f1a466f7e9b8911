#include "net/socket/shared/imported_arena.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <vector>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/mutex.h"
#include "core/memory/pages.h"
#include "net/socket/shared/exported_blocks.h"
#include "net/socket/shared/shared_memory.h"

namespace troupe::internal::net {

class ImportedArena::Mapping final : public Lender, public std::enable_shared_from_this<Mapping> {
 public:
  Mapping(std::byte* base, size_t bytes, std::shared_ptr<ExportTable> table, Descriptor lease)
      : base_(base), bytes_(bytes), table_(std::move(table)), lease_(std::move(lease)) {
    std::lock_guard lock(all_.mutex);
    before_ = std::exchange(all_.last, this);
    if (before_) before_->after_ = this;
  }
  // Nothing is held: each storage has a reference to this.
  ~Mapping() override {
    {
      std::lock_guard lock(all_.mutex);
      (after_ ? after_->before_ : all_.last) = before_;
      if (before_) before_->after_ = after_;
    }
    if (table_) ::munmap(base_, bytes_);
  }

  Ref<Storage> adopt(const ExportPlace& place, size_t size) {
    {
      std::lock_guard lock(mutex_);
      if (held_.size() <= place.slot) held_.resize(place.slot + 1);
      if (ended_ || held_[place.slot].size)
        throw_invalid(
            fmt::format("[net] a buffer in slot {} of shared memory, which another one has", place.slot));
      held_[place.slot] = {place.offset, size};
    }
    std::shared_ptr<void> lent(
        base_ + place.offset, [self = shared_from_this(), slot = place.slot](void*) { self->release(slot); });
    return Storage::borrow(base_ + place.offset, size, std::move(lent));
  }

  void end() {
    std::unique_lock lock(mutex_);
    if (std::exchange(ended_, true) || try_detach()) return;
    log::warning(
        "[net] no memory for tensors that came by a connection that has ended: they stay in memory of the "
        "process that sent them, which the system keeps as long as they live");
    lock.unlock();
    add_lender(shared_from_this());
  }
  bool collect() override {
    std::lock_guard lock(mutex_);
    return !try_detach();
  }
  size_t lent_bytes() const override { return 0; }
  bool detached() const {
    std::lock_guard lock(mutex_);
    return !table_;
  }
  size_t bytes() const { return bytes_; }

  // A child that fork() makes has copies of what is held, and lets the owner know of nothing: it has neither
  // table nor lease, which are the parent's.
  static bool handle_forks() {
    static const int registered = ::pthread_atfork(
        []() TROUPE_AROUND_FORK {
          all_.mutex.lock();
          for (Mapping* m = all_.last; m; m = m->before_) m->before_fork();
        },
        []() TROUPE_AROUND_FORK {
          size_t refused = 0;
          for (Mapping* m = all_.last; m; m = m->before_) refused += m->after_fork_in_parent();
          all_.mutex.unlock();
          warn_of_child_without(refused);
        },
        []() TROUPE_AROUND_FORK {
          for (Mapping* m = all_.last; m; m = m->before_) m->after_fork_in_child();
          all_.mutex.unlock();
        });
    return registered == 0;
  }

 private:
  struct All {
    internal::Mutex mutex;
    Mapping* last = nullptr;
  };
  static All all_;  // has nothing to destroy: tensors may outlive main
  struct Held {
    size_t offset = 0, size = 0;  // 0: the slot is free
    size_t begin() const { return offset / kPageBytes * kPageBytes; }
    size_t end() const { return (offset + size + kPageBytes - 1) / kPageBytes * kPageBytes; }
  };
  struct Run {  // pages of this process
    size_t begin, end, held;
  };

  void release(size_t slot) {
    std::lock_guard lock(mutex_);
    const Held was = std::exchange(held_[slot], {});
    if (table_) return table_->at(slot).store(0, std::memory_order_release);
    const auto run = std::find_if(runs_.begin(), runs_.end(),
                                  [&](const Run& r) { return r.begin <= was.begin() && was.end() <= r.end; });
    if (run == runs_.end() || --run->held) return;  // a child may have no copy
    ::munmap(base_ + run->begin, run->end - run->begin);
    runs_.erase(run);
  }

  // With mutex_: the pages of what is held.
  std::vector<Run> runs_held() const {
    std::vector<Held> held;
    for (const Held& h : held_)
      if (h.size) held.push_back(h);
    std::sort(held.begin(), held.end(), [](const Held& a, const Held& b) { return a.begin() < b.begin(); });
    std::vector<Run> runs;
    for (const Held& h : held)
      if (!runs.empty() && h.begin() < runs.back().end)
        runs.back().end = std::max(runs.back().end, h.end()), ++runs.back().held;
      else
        runs.push_back({h.begin(), h.end(), 1});
    return runs;
  }

  // With mutex_, once. True: nothing of the owner's is mapped any more.
  bool try_detach() {
    if (!table_) return true;
    std::vector<Run> runs = runs_held();
    for (const Run& r : runs) {
      auto copy = PageCopy::of(base_ + r.begin, r.end - r.begin);
      if (!copy || !copy->move_over(PROT_READ)) return false;
    }
    size_t mapped = 0;
    for (const Run& r : runs) {
      if (r.begin > mapped) ::munmap(base_ + mapped, r.begin - mapped);
      mapped = r.end;
    }
    if (mapped < bytes_) ::munmap(base_ + mapped, bytes_ - mapped);
    for (size_t slot = 0; slot < held_.size(); ++slot)
      if (held_[slot].size) table_->at(slot).store(0, std::memory_order_release);
    runs_ = std::move(runs);
    table_.reset();
    lease_.reset();  // last: from here on the owner may use all again
    return true;
  }

  void before_fork() TROUPE_AROUND_FORK {
    mutex_.lock();
    if (!table_) return;  // ordinary pages
    for (const Run& r : runs_held()) copies_.add(base_ + r.begin, r.end - r.begin);
  }
  size_t after_fork_in_parent() TROUPE_AROUND_FORK {
    const size_t refused = copies_.drop();
    mutex_.unlock();
    return refused;
  }
  void after_fork_in_child() TROUPE_AROUND_FORK {
    if (table_) {
      std::vector<Run> runs = runs_held();
      if (copies_.move_over(base_, bytes_, PROT_READ)) runs_ = std::move(runs);
      table_.reset();
      lease_.reset();
      ended_ = true;
    }
    mutex_.unlock();
  }

  std::byte* const base_;
  const size_t bytes_;
  mutable internal::Mutex mutex_;
  std::shared_ptr<ExportTable> table_;  // null: detached
  Descriptor lease_;
  std::vector<Held> held_;  // by slot
  std::vector<Run> runs_;   // once detached
  bool ended_ = false;
  ForkCopies copies_;                             // while a fork() is in progress
  Mapping *before_ = nullptr, *after_ = nullptr;  // others of this process
};

constinit ImportedArena::Mapping::All ImportedArena::Mapping::all_;

std::unique_ptr<ImportedArena> ImportedArena::open(const Descriptor& arena, const Descriptor& table,
                                                   Descriptor lease, size_t most, std::string& why) {
  const size_t size = shared_memory_size(arena, why);
  if (!size) return nullptr;
  if (size > most || size % kPageBytes != 0)
    return why = fmt::format("it has {} bytes; expected whole pages, at most {}", size, most), nullptr;
  const size_t words = shared_memory_size(table, why);
  if (!words) return nullptr;
  if (words != ExportTable::kBytes)
    return why = fmt::format("its table has {} bytes; expected {}", words, ExportTable::kBytes), nullptr;
  if (!lease) return why = "it came without a lease", nullptr;
  if (!Mapping::handle_forks()) return why = "no memory for a handler of fork()", nullptr;
  auto mapped_table = ExportTable::map(table);
  std::byte* const base = mapped_table ? map_shared(arena.get(), size, PROT_READ) : nullptr;
  if (!base) return why = "it cannot be mapped: " + errno_text(errno), nullptr;
  return std::unique_ptr<ImportedArena>(
      new ImportedArena(std::make_shared<Mapping>(base, size, std::move(mapped_table), std::move(lease))));
}

ImportedArena::~ImportedArena() { detach(); }

Ref<Storage> ImportedArena::adopt(uint64_t word, size_t size) const {
  const ExportPlace place = ExportPlace::of(word);
  if (place.slot >= ExportTable::kSlots || place.offset % ExportPlace::kAlignment != 0 || size == 0 ||
      place.offset > mapping_->bytes() || size > mapping_->bytes() - place.offset)
    throw_invalid(fmt::format("[net] a buffer of {} bytes at {} of shared memory that has {}", size,
                              place.offset, mapping_->bytes()));
  return mapping_->adopt(place, size);
}

void ImportedArena::detach() { mapping_->end(); }
bool ImportedArena::detached() const { return mapping_->detached(); }

}  // namespace troupe::internal::net
