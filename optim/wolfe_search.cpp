#include "optim/wolfe_search.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace troupe::internal {
namespace {

constexpr double kEnough = 1e-4, kCurved = 0.9;
constexpr int kMost = 25;

// This is where the cubic through two points with their slopes is least, within bounds.
double cubic(const Trial& a, const Trial& b, double low, double high) {
  const double x1 = a.t, g1 = a.slope, x2 = b.t, g2 = b.slope;
  const double d1 = g1 + g2 - 3 * (a.loss - b.loss) / (x1 - x2), square = d1 * d1 - g1 * g2;
  if (!(square >= 0)) return (low + high) / 2;
  const double d2 = std::sqrt(square);
  const double least = x1 <= x2 ? x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2))
                                : x1 - (x1 - x2) * ((g1 + d2 - d1) / (g1 - g2 + 2 * d2));
  return std::min(std::max(least, low), high);
}

// Two trials between which a good one lies; or `done`: the second is one.
struct Bracket {
  std::array<Trial, 2> ends;
  int looked = 0;
  bool done = false;
  size_t low() const { return ends[0].loss <= ends[1].loss ? 0 : 1; }
};

bool is_too_high(const Trial& x, const Trial& start) {
  return x.loss > start.loss + kEnough * x.t * start.slope;
}
bool is_flat(const Trial& x, const Trial& start) { return std::abs(x.slope) <= -kCurved * start.slope; }

Bracket find_bracket(const std::function<Trial(double)>& look, const Trial& start, double t) {
  Trial now = look(t), last = start;
  for (int looked = 0; looked < kMost; ++looked) {
    if (is_too_high(now, start) || (looked > 1 && now.loss >= last.loss)) return {{last, now}, looked};
    if (is_flat(now, start)) return {{last, now}, looked, true};
    if (now.slope >= 0) return {{last, now}, looked};
    const double next = cubic(last, now, now.t + 0.01 * (now.t - last.t), now.t * 10);
    last = now;
    now = look(next);
  }
  return {{start, now}, kMost};
}

// What the cubic says, but not too near to an end twice.
double next_within(const std::array<Trial, 2>& ends, bool& slow) {
  const double left = std::min(ends[0].t, ends[1].t), right = std::max(ends[0].t, ends[1].t);
  const double t = cubic(ends[0], ends[1], left, right), edge = 0.1 * (right - left);
  const bool near = std::min(right - t, t - left) < edge, moved = near && (slow || t >= right || t <= left);
  slow = near && !moved;
  if (!moved) return t;
  return std::abs(t - right) < std::abs(t - left) ? right - edge : left + edge;
}

}  // namespace

Trial wolfe_search(const std::function<Trial(double)>& look, const Trial& start, double t, double size,
                   double nearest) {
  Bracket b = find_bracket(look, start, t);
  if (b.done) return b.ends[1];
  bool slow = false;
  size_t low = b.low();
  for (; b.looked < kMost; ++b.looked) {
    if (std::abs(b.ends[1].t - b.ends[0].t) * size < nearest) break;
    const Trial now = look(next_within(b.ends, slow));
    if (is_too_high(now, start) || now.loss >= b.ends[low].loss) {
      b.ends[1 - low] = now;
      low = b.low();
      continue;
    }
    const bool done = is_flat(now, start);
    if (!done && now.slope * (b.ends[1 - low].t - b.ends[low].t) >= 0) b.ends[1 - low] = b.ends[low];
    b.ends[low] = now;
    if (done) break;
  }
  return b.ends[low];
}

}  // namespace troupe::internal
