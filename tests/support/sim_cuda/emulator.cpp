// Kernels on the host: a block's threads are fibers that take turns at barriers. One fiber runs thread after
// thread; only when one waits does another start, so that a kernel without barriers is a loop.
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "tests/support/sim_cuda/machine.h"
#include "tests/support/sim_cuda/shim.h"

namespace sim_cuda {
namespace {

constexpr size_t kStack = 256 << 10;

enum class State : uint8_t { unstarted, ready, at_barrier, in_warp, finished };

struct Fiber;

struct Thread {
  State state = State::unstarted;
  uint3 index{};
  unsigned number = 0, mask = 0;
  Fiber* fiber = nullptr;
  Place at;
};

// makecontext() begins a fiber, and _longjmp() goes on with it: swapcontext() would ask the kernel for the
// mask of signals each time, four fifths of the time of a kernel with barriers.
struct Fiber {
  ucontext_t first{};
  bool begun = false;
  jmp_buf at{};
  std::unique_ptr<std::byte[]> stack{new std::byte[kStack]};
};

struct Lane {
  alignas(16) std::byte bytes[16];
  bool came = false;
};

// A value of one meeting may be read until the next meeting is over: two sets take turns.
struct Warp {
  Lane lanes[2][32];
  unsigned turn = 0;
  unsigned waiting = 0;  // how many lanes are `in_warp`
  unsigned some = 0;     // those of them whose mask has not all
  unsigned gone = 0;     // lanes that have finished
};

std::string text_of(const Place& at) { return std::string(at.file_name()) + ":" + std::to_string(at.line()); }

class Block {
 public:
  Block(dim3 size, size_t shared_bytes, Kernel& kernel, std::mt19937_64* random)
      : size_(size),
        count_(size.x * size.y * size.z),
        shared_bytes_(shared_bytes),
        shared_(new std::byte[shared_bytes + 16]),
        kernel_(kernel),
        random_(random),
        threads_(count_),
        warps_((count_ + 31) / 32),
        order_(count_) {
    for (unsigned i = 0; i < count_; ++i) {
      threads_[i].number = i;
      threads_[i].index = {i % size_.x, i / size_.x % size_.y, i / (size_.x * size_.y)};
    }
    std::iota(order_.begin(), order_.end(), 0u);
  }

  void run() {
    std::memset(shared_.get(), kPoison, shared_bytes_);
    forget_copies();
    for (Thread& t : threads_) t.state = State::unstarted;  // and without a fiber, since it has finished
    for (Warp& w : warps_) {
      w.gone = 0;
      for (auto& lanes : w.lanes)
        for (Lane& lane : lanes) lane.came = false;
    }
    pace_ = random_ ? kPaces[(*random_)() % std::size(kPaces)] : Pace::in_step;
    put_in_order();
    finished_ = 0;
    for (;;) {
      bool ran = false;
      for (place_ = 0; place_ < count_; ++place_) {
        Thread& t = threads_[order_[place_]];
        if (t.state != State::ready && t.state != State::unstarted) continue;
        ran = true;
        resume(t);
        if (!fault_.empty()) throw Fault{fault_};
        go_on_with_warp();
      }
      if (finished_ == count_) return;
      if (!ran) release_barrier();
    }
  }

  // ---- called by the thread that runs
  void wait(State state, const Place& at) {
    Thread& t = *running_;
    t.state = state;
    t.at = at;
    leave(t);
  }
  void stop(std::string text) {
    fault_ = std::move(text);
    leave(*running_);
    std::abort();  // never resumed
  }
  Thread& running() { return *running_; }
  Warp& warp() { return warps_[running_->number / 32]; }
  void* shared() {
    return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(shared_.get()) + 15) / 16 * 16);
  }

  void meet(unsigned mask, const void* value, size_t bytes, const Place& at) {
    Thread& t = *running_;
    if (!(mask >> (t.number % 32) & 1)) stop(text_of(at) + ": a lane is not in its own mask");
    Lane& lane = warp().lanes[warp().turn][t.number % 32];
    if (bytes) std::memcpy(lane.bytes, value, bytes);
    lane.came = true;
    t.mask = mask;
    t.at = at;
    t.state = State::in_warp;
    ++warp().waiting;
    warp().some += mask != ~0u;
    if (release_warp(t.number / 32)) return set_running(t);  // the last one goes on
    leave(t);
  }

  static Block* now;

 private:
  // How far a warp goes before the next one: to where its lanes wait for each other, to a barrier, or by
  // chance.
  enum class Pace : uint8_t { in_step, ahead, mixed };
  static constexpr Pace kPaces[] = {Pace::in_step, Pace::mixed, Pace::ahead, Pace::ahead};

  // If a warp stopped only because its lanes met, it may go on before the next one begins: what only a
  // barrier keeps apart from others comes close to them.
  void go_on_with_warp() {
    if (pace_ == Pace::in_step) return;
    const unsigned lane = order_[place_] % 32, first = order_[place_] - lane;
    const unsigned last = std::min(first + 32, count_);
    if (order_[place_] + 1 != last || (pace_ == Pace::mixed && (*random_)() % 2)) return;
    for (unsigned i = first; i < last; ++i)
      if (threads_[i].state == State::ready) {
        place_ -= lane + 1;
        return;
      }
  }

  // The warps in an order of chance, the threads of each in their own.
  void put_in_order() {
    if (!random_ || warps_.size() < 2) return;
    std::vector<std::pair<uint64_t, unsigned>> drawn(warps_.size());
    for (unsigned w = 0; w < drawn.size(); ++w) drawn[w] = {(*random_)(), w};
    std::ranges::sort(drawn);
    auto place = order_.begin();
    for (const auto& [priority, warp] : drawn)
      for (unsigned i = warp * 32; i < std::min(warp * 32 + 32, count_); ++i) *place++ = i;
  }

  void set_running(Thread& t) {
    running_ = &t;
    t.state = State::ready;
    threadIdx = t.index;
  }

  void resume(Thread& t) {
    if (!t.fiber) {
      t.fiber = idle_.empty() ? make_fiber() : idle_.back();
      if (!idle_.empty()) idle_.pop_back();
    }
    set_running(t);
    if (_setjmp(main_)) return;
    if (t.fiber->begun) _longjmp(t.fiber->at, 1);
    t.fiber->begun = true;
    setcontext(&t.fiber->first);
  }

  void leave(Thread& t) { leave(*t.fiber); }
  void leave(Fiber& fiber) {
    if (!_setjmp(fiber.at)) _longjmp(main_, 1);
  }

  Fiber* make_fiber() {
    fibers_.push_back(std::make_unique<Fiber>());
    Fiber* f = fibers_.back().get();
    getcontext(&f->first);
    f->first.uc_stack.ss_sp = f->stack.get();
    f->first.uc_stack.ss_size = kStack;
    f->first.uc_link = nullptr;
    makecontext(&f->first, &Block::enter, 0);
    return f;
  }

  static void enter() { now->run_threads(); }

  void run_threads() {
    for (;;) {
      kernel_.run_thread();
      Thread& done = *running_;
      if (has_copies(done.number))
        stop("a thread ends, and has not waited for its copies into shared memory");
      done.state = State::finished;
      ++finished_;
      ++warps_[done.number / 32].gone;
      release_warp(done.number / 32);
      Fiber* mine = done.fiber;
      done.fiber = nullptr;
      Thread* next = nullptr;
      if (place_ + 1 < count_ && threads_[order_[place_ + 1]].state == State::unstarted)
        next = &threads_[order_[++place_]];
      if (!next) {
        idle_.push_back(mine);
        leave(*mine);
        continue;  // with the thread that resume() chose
      }
      next->fiber = mine;
      set_running(*next);
    }
  }

  // Lanes that wait for each other go on if all of their masks are there or have ended.
  bool release_warp(unsigned warp) {
    Warp& w = warps_[warp];
    const unsigned first = warp * 32, last = std::min(first + 32, count_);
    if (!w.waiting || (!w.some && w.waiting + w.gone < last - first)) return false;
    unsigned waiting = 0, gone = 0, mask = 0;
    for (unsigned i = first; i < last; ++i) {
      if (threads_[i].state == State::in_warp) {
        waiting |= 1u << (i - first);
        mask |= threads_[i].mask;
      }
      if (threads_[i].state == State::finished) gone |= 1u << (i - first);
    }
    const unsigned there = last - first == 32 ? ~0u : (1u << (last - first)) - 1;
    if (mask & there & ~(waiting | gone)) return false;
    for (unsigned i = first; i < last; ++i)
      if (threads_[i].state == State::in_warp) threads_[i].state = State::ready;
    w.turn ^= 1;
    w.waiting = w.some = 0;
    for (Lane& lane : w.lanes[w.turn]) lane.came = false;
    return true;
  }

  void release_barrier() {
    const Thread* first = nullptr;
    for (const Thread& t : threads_) {
      if (t.state == State::finished) continue;
      if (!first) first = &t;
      if (t.state == first->state && t.at.line() == first->at.line() && t.at.column() == first->at.column())
        continue;
      throw Fault{"threads of a block wait for each other at two places: thread " +
                  std::to_string(first->number) + " at " + text_of(first->at) + ", thread " +
                  std::to_string(t.number) + " at " + text_of(t.at)};
    }
    if (first->state == State::in_warp)
      throw Fault{"lanes wait for ever at " + text_of(first->at) + " for others of their mask"};
    for (Thread& t : threads_)
      if (t.state == State::at_barrier) t.state = State::ready;
    put_in_order();
  }

  const dim3 size_;
  const unsigned count_;
  const size_t shared_bytes_;
  std::unique_ptr<std::byte[]> shared_;
  Kernel& kernel_;
  std::mt19937_64* random_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<unsigned> order_;
  unsigned place_ = 0, finished_ = 0;
  Pace pace_ = Pace::in_step;
  Thread* running_ = nullptr;
  std::string fault_;
  jmp_buf main_{};
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
};

Block* Block::now = nullptr;

}  // namespace

void run_grid(dim3 grid, dim3 block, size_t shared_bytes, Kernel& kernel, std::mt19937_64* random) {
  Block b(block, shared_bytes, kernel, random);
  Block::now = &b;
  blockDim = block;
  gridDim = grid;
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = {x, y, z};
        b.run();
      }
  Block::now = nullptr;
}

void* dynamic_shared() { return Block::now->shared(); }
void block_barrier(const Place& at) { Block::now->wait(State::at_barrier, at); }
void warp_meet(unsigned mask, const void* value, size_t bytes, const Place& at) {
  Block::now->meet(mask, value, bytes, at);
}
const void* lane_value(unsigned lane) {
  Warp& w = Block::now->warp();
  const Lane& l = w.lanes[w.turn ^ 1][lane % 32];
  return l.came ? l.bytes : nullptr;
}
unsigned thread_number() { return Block::now->running().number; }
unsigned lane_of_thread() { return Block::now->running().number % 32; }
void trap(const char* text, const Place& at) {
  Block::now->stop(text_of(at) + ": " + text);
  std::abort();
}

}  // namespace sim_cuda
