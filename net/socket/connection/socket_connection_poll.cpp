// Who polls the ring of a connection, and who sleeps there.
#include <sys/epoll.h>

#include "net/socket/connection/socket_connection.h"
#include "net/socket/loop/cpu_affinity.h"

namespace troupe::internal::net {
namespace {

constexpr size_t kCallerTurn = 16;  // messages that a caller delivers before it polls its own
constexpr int kPollsPerTurn = 32;
constexpr Duration kFollows = std::chrono::microseconds(200);  // messages that follow each other
constexpr Duration kRetry = std::chrono::milliseconds(1);      // to read, of who has nothing else to do
constexpr Duration kShowsUp = std::chrono::microseconds(15);   // whoever was woken, where a core is free

}  // namespace

void SocketConnection::begin_polling() {
  pollers_.fetch_add(1);
  ring_reader_->wake_up();
}

// The last one lets the peer know that somebody has to be woken, and polls once more. A caller that has slept
// here all the while reads again from now on.
void SocketConnection::end_polling() {
  if (pollers_.fetch_sub(1) != 1) return;
  ring_reader_->sleep(sleeper_ ? RingState::on_word : RingState::for_bell);
  std::unique_lock reading(read_mutex_);
  if (ring_misused_ || held_ || ring_reader_->empty()) return;
  reading.unlock();
  core_->delivery.post([self = shared_from_this()] { self->on_readable(); });
}

// Two that poll each other's rings from one core only keep each other from running. They come to be there
// because the kernel likes to wake a thread where its waker is, and does not search for an idle core while
// both have been busy (polling) of late. Whoever sees it moves; so does one that has woken the other, which
// slept here, and sees no sign of it from `since` on: it may be waiting for this very core.
bool SocketConnection::keep_apart(TimePoint now, TimePoint since) {
  const uint32_t core = this_core();
  ring_reader_->poll_from(core);
  const RingWriter* towards = towards_.load(std::memory_order_acquire);
  if (!towards || !core) return false;
  const uint32_t other = towards->reader_core();
  const bool away = other & RingControl::kAway;
  if (!away) rang_.store(false, std::memory_order_relaxed);
  const bool missing = away && now - since > kShowsUp && rang_.load(std::memory_order_relaxed);
  if ((away && !missing) || (other & ~RingControl::kAway) != core || !core_->may_move(now)) return false;
  migrate_cpu();
  return true;
}

bool SocketConnection::poll() {
  std::unique_lock reading(read_mutex_, std::try_to_lock);
  return reading && read_ring(kCallerTurn);
}

void SocketConnection::poll_here() {
  if (!ring_reader_ || std::exchange(listed_, true)) return;
  begin_polling();
  core_->polls(shared_from_this());
}

void SocketConnection::stop_polling() {
  listed_ = false;
  end_polling();
}

// ---- a caller that waits

void SocketConnection::deliver_until(const Ready& done, TimePoint end, bool polls, LocalRunQueue* run_queue) {
  if (!core_->limits().callers_read || waited_on_.exchange(true)) return;
  if (has_ring_.load(std::memory_order_acquire))
    read_ring_until(done, end, polls, run_queue);
  else if (polls && !(same_host_ && core_->limits().ring_bytes))  // else the delivery thread takes the ring
    read_socket_until(done, end);
  waited_on_.store(false);
}

void SocketConnection::read_ring_until(const Ready& done, TimePoint end, bool polls,
                                       LocalRunQueue* run_queue) {
  const auto called = [&] { return run_queue && !run_queue->empty(); };
  const auto over = [&] { return done.is_set() || called(); };
  begin_polling();
  for (TimePoint now = core_->now(); !done.is_set() && now < end; now = core_->now()) {
    if (polls) poll_until(end, over, [this] { return poll(); });
    if (called()) {
      end_polling();
      run_queue->run();
      begin_polling();
      polls = true;
    } else if (done.is_set()) {
      break;
    } else if (sleep_until(done, end, run_queue)) {
      const bool relieves =
          run_queue && pollers_ > 1;  // the delivery thread, which stops where a caller polls
      polls = relieves || core_->now() - now < kFollows;
    } else {
      break;
    }
  }
  end_polling();
}

// Meanwhile what comes wakes nobody. A thread cannot sleep on a socket and on a flag: then the delivery
// thread reads again.
void SocketConnection::read_socket_until(const Ready& done, TimePoint end) {
  if (!watch_socket(false)) return;
  const auto over = [&] { return done.is_set(); };
  poll_until(end, over, [this] {
    std::unique_lock reading(read_mutex_, std::try_to_lock);
    if (!reading) return false;
    const uint32_t before = expected_;
    read_socket();
    return expected_ != before;
  });
  watch_socket(true);
}

bool SocketConnection::watch_socket(bool on) {
  std::lock_guard lock(mutex_);
  if (state_ == State::closed || read_watch_ == 0 || lanes_.awaited || stream_.reads_lanes()) return false;
  core_->delivery.change(read_watch_, stream_.fd(), on ? EPOLLIN : 0u);
  return true;
}

// Until it is over, or nothing has come for a while.
template <class Over, class Poll>
void SocketConnection::poll_until(TimePoint end, const Over& over, const Poll& poll) {
  TimePoint now = core_->now(), last = now;
  const TimePoint start = now;
  if (!core_->may_poll(now)) return;
  core_->waiting_callers.fetch_add(1);
  bool in_vain = false;
  for (int polls = 1; !over() && now < end && !in_vain; ++polls) {
    const bool came = poll();
    if (!came) core_->rest();
    if (!came && !core_->yields() && polls % kPollsPerTurn != 0) continue;
    const TimePoint before = std::exchange(now, core_->now());
    const bool moved = has_ring_.load(std::memory_order_relaxed) && keep_apart(now, start);
    if (came) last = now;
    in_vain = now - last >= core_->limits().polling ||
              (!came && core_->was_away(before, now));  // what came may have taken its time
    if (moved) now = core_->now();
  }
  core_->waiting_callers.fetch_sub(1);
}

// In the ring itself: whoever writes there wakes this thread, and no other has to be woken first. Comes back
// when something came. False: this thread is not needed here. `stays`: while somebody else reads, for a
// moment.
bool SocketConnection::sleep_until(const Ready& done, TimePoint end, bool stays) {
  sleeper_ = true;
  const bool last = pollers_.fetch_sub(1) == 1;
  const RingState state = last ? RingState::on_word : RingState::polls;
  if (last) ring_reader_->sleep(state);
  std::unique_lock reading(read_mutex_, std::defer_lock);
  const bool alone = last && reading.try_lock();
  bool slept = alone && !ring_misused_ && !held_ && !ring_reader_->empty();
  if (alone) reading.unlock();
  if (!slept && (alone || stays))
    slept = done.wait_with(ring_reader_->word(), static_cast<uint32_t>(state),
                           alone ? end : std::min(end, core_->now() + kRetry));
  sleeper_ = false;
  begin_polling();
  if (slept) poll();
  return slept;
}

}  // namespace troupe::internal::net
