// Loops whose pieces run on several threads.
#pragma once
#include <cstdint>
#include <type_traits>

namespace troupe::ops::on_cpu {

/// Whether a call from here may use more threads than this one.
bool may_fork();
/// Changes with every call: which way this thread walks next. What one loop wrote last, the next one
/// reads first, while it is in the cache.
inline bool turn_around() {
  thread_local bool back = false;
  return back = !back;
}
/// parallel_for() without its short cut.
void run_pieces(int64_t pieces, void (*f)(const void* context, int64_t piece), const void* context);

/// Calls f(i) once for each i in [0, pieces), in any order, on up to num_threads() threads, of which the
/// caller is one; returns when all are done. `piece_ns`, about how long one call takes, keeps small loops on
/// this thread, as it does where another parallel_for is running (around this one, or called by another
/// actor).
///
/// How work is cut must not depend on the number of threads: then neither do the bits. An exception of f
/// comes out here; pieces that have not begun are left out then.
template <class F>
void parallel_for(int64_t pieces, double piece_ns, const F& f) {
  constexpr double kWorthwhile = 20000;  // ns; handing over takes 2 to 10 us
  if (pieces <= 1 || static_cast<double>(pieces) * piece_ns < kWorthwhile || !may_fork()) {
    const bool back = pieces > 1 && turn_around();
    for (int64_t i = 0; i < pieces; ++i) f(back ? pieces - 1 - i : i);
    return;
  }
  run_pieces(
      pieces, [](const void* context, int64_t i) { (*static_cast<const F*>(context))(i); }, &f);
}

/// Lets oneDNN, which runs on OpenMP's threads, use only this one: how it cuts work, and so the bits, depends
/// on their number. Holds it to level() as well. Call before each use of it.
void keep_onednn_on_this_thread();

}  // namespace troupe::ops::on_cpu
