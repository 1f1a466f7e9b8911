#include "collective/schedule/block_steps.h"

namespace troupe::internal::collective {

BlockSteps operator+(BlockSteps a, const BlockSteps& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

size_t power_below(size_t n) {
  size_t p = 1;
  while (p * 2 <= n) p *= 2;
  return p;
}

namespace {

BlockSteps one_round(size_t r, size_t n, Take take) {
  BlockStep s;
  for (size_t k = 0; k < n; ++k)
    if (k != r) s.sends.push_back({k, 0, 1}), s.receives.push_back({k, 0, 1, take});
  return {s};
}

}  // namespace

BlockSteps everything_to_all(size_t r, size_t n) { return one_round(r, n, Take::add); }
BlockSteps everybody_to_all(size_t r, size_t n) { return one_round(r, n, Take::put); }

BlockSteps direct_sum(size_t r, size_t n) {
  BlockStep s;
  for (size_t k = 0; k < n; ++k)
    if (k != r) s.sends.push_back({k, k, k + 1}), s.receives.push_back({k, r, r + 1, Take::add});
  return {s};
}

BlockSteps direct_spread(size_t r, size_t n) {
  BlockStep s;
  for (size_t k = 0; k < n; ++k)
    if (k != r) s.sends.push_back({k, r, r + 1}), s.receives.push_back({k, k, k + 1, Take::put});
  return {s};
}

BlockSteps ring_sum(size_t r, size_t n) {
  BlockSteps all;
  const size_t right = (r + 1) % n, left = (r + n - 1) % n;
  for (size_t i = 1; i < n; ++i) {
    const size_t out = (r + n - i) % n, in = (out + n - 1) % n;  // block r comes last, with all others' in it
    all.push_back({{{right, out, out + 1}}, {{left, in, in + 1, Take::add}}});
  }
  return all;
}

BlockSteps ring_spread(size_t r, size_t n) {
  BlockSteps all;
  const size_t right = (r + 1) % n, left = (r + n - 1) % n;
  for (size_t i = 1; i < n; ++i) {
    const size_t out = (r + n + 1 - i) % n, in = (out + n - 1) % n;
    all.push_back({{{right, out, out + 1}}, {{left, in, in + 1, Take::put}}});
  }
  return all;
}

BlockSteps from_root(size_t r, size_t n, size_t root, bool own_blocks) {
  const auto block = [&](size_t k) { return own_blocks ? k : 0; };
  BlockStep s;
  if (r != root) {
    s.receives.push_back({root, block(r), block(r) + 1, Take::put});
    return {s};
  }
  for (size_t k = 0; k < n; ++k)
    if (k != root) s.sends.push_back({k, block(k), block(k) + 1});
  return {s};
}

BlockSteps to_root(size_t r, size_t n, size_t root, size_t block, Take take) {
  BlockStep s;
  if (r != root) {
    s.sends.push_back({root, block, block + 1});
    return {s};
  }
  for (size_t k = 0; k < n; ++k)
    if (k != root) {
      const size_t b = take == Take::add ? block : k;
      s.receives.push_back({k, b, b + 1, take});
    }
  return {s};
}

namespace {

// The largest power of two p of n ranks takes part; of the first 2 * (n - p) ranks one stands for two.
struct Fold {
  explicit Fold(size_t n) : p(power_below(n)), extra(n - p) {}
  bool in_pair(size_t r) const { return r < 2 * extra; }
  size_t number(size_t r) const { return in_pair(r) ? r / 2 : r - extra; }
  size_t odd(size_t v) const {
    return v < extra ? 2 * v + 1 : v + extra;
  }  // the odd rank of a pair takes part
  const size_t p, extra;
};

// `inner(v, p)`: what number v of p does. The even rank of a pair gives first, and gets the result last.
template <class F>
BlockSteps folded(size_t r, size_t n, size_t blocks, F inner) {
  const Fold fold(n);
  if (fold.in_pair(r) && r % 2 == 0)
    return {{.sends = {{r + 1, 0, blocks}}}, {.receives = {{r + 1, 0, blocks, Take::put}}}};
  BlockSteps all;
  if (fold.in_pair(r)) all.push_back({.receives = {{r - 1, 0, blocks, Take::add}}});
  for (BlockStep s : inner(fold.number(r), fold.p)) {
    for (BlockSend& x : s.sends) x.to = fold.odd(x.to);
    for (BlockReceive& x : s.receives) x.from = fold.odd(x.from);
    all.push_back(std::move(s));
  }
  if (fold.in_pair(r)) all.push_back({.sends = {{r - 1, 0, blocks}}});
  return all;
}

}  // namespace

BlockSteps doubling_steps(size_t r, size_t n) {
  return folded(r, n, 1, [](size_t v, size_t p) {
    BlockSteps all;
    for (size_t d = 1; d < p; d *= 2) all.push_back({{{v ^ d, 0, 1}}, {{v ^ d, 0, 1, Take::add}}});
    return all;
  });
}

BlockSteps halving_steps(size_t r, size_t n) {
  return folded(r, n, power_below(n), [](size_t v, size_t p) {
    BlockSteps all, back;
    size_t low = 0, high = p;
    for (size_t d = 1; d < p; d *= 2) {  // nearest first: the order of the sum is that of doubling
      const size_t middle = (low + high) / 2;
      const bool upper = v & d;
      const size_t mine = upper ? middle : low, mine_end = upper ? high : middle;
      const size_t other = upper ? low : middle, other_end = upper ? middle : high;
      all.push_back({{{v ^ d, other, other_end}}, {{v ^ d, mine, mine_end, Take::add}}});
      back.insert(back.begin(), {{{v ^ d, mine, mine_end}}, {{v ^ d, other, other_end, Take::put}}});
      low = mine, high = mine_end;
    }
    return all + back;
  });
}

BlockSteps tree_sum(size_t r, size_t n, size_t root) {
  const Fold fold(n);
  // Who has the sum of the numbers [v, v + d): the root if it is one of them, else the first.
  const auto holder = [&](size_t v, size_t d) {
    const size_t at = fold.number(root);
    return at >= v && at < v + d ? root : fold.odd(v);
  };
  BlockSteps all;
  const auto give = [&](size_t from, size_t to) {
    if (r == from) all.push_back({.sends = {{to, 0, 1}}});
    if (r == to) all.push_back({.receives = {{from, 0, 1, Take::add}}});
  };
  if (fold.in_pair(r)) {
    const size_t to = holder(fold.number(r), 1);
    give(to % 2 ? to - 1 : to + 1, to);
    if (r != to) return all;
  }
  for (size_t d = 1, v = fold.number(r); d < fold.p; d *= 2) {
    const size_t low = v / (2 * d) * (2 * d), to = holder(low, 2 * d);
    const size_t left = holder(low, d), right = holder(low + d, d);
    give(to == left ? right : left, to);
    if (r != to) break;
  }
  return all;
}

BlockSteps tree_spread(size_t r, size_t n, size_t root) {
  const size_t v = (r + n - root) % n;
  const auto rank = [&](size_t w) { return (w + root) % n; };
  BlockSteps all;
  if (v) all.push_back({.receives = {{rank(v & (v - 1)), 0, 1, Take::put}}});
  BlockStep s;
  for (size_t d = power_below(n); d; d /= 2)  // the farthest first: it has most to pass on
    if ((!v || d < (v & (~v + 1))) && v + d < n) s.sends.push_back({rank(v + d), 0, 1});
  if (!s.sends.empty()) all.push_back(std::move(s));
  return all;
}

BlockSteps exchange(size_t r, size_t n) {
  BlockStep s;
  for (size_t i = 1; i < n; ++i) {  // each begins with another one
    const size_t to = (r + i) % n, from = (r + n - i) % n;
    s.sends.push_back({to, r * n + to, r * n + to + 1});
    s.receives.push_back({from, from * n + r, from * n + r + 1, Take::put});
  }
  return {s};
}

BlockSteps dissemination(size_t r, size_t n) {
  BlockSteps all;
  for (size_t d = 1; d < n; d *= 2)
    all.push_back({{{(r + d) % n, 0, 0}}, {{(r + n - d) % n, 0, 0, Take::put}}});
  return all;
}

BlockSteps heard_by_all(size_t r, size_t n, BlockSteps steps) {
  if (n > kManyRanks) return dissemination(r, n) + steps;
  std::vector<bool> sent(n), received(n);
  sent[r] = received[r] = true;
  for (const BlockStep& s : steps) {
    for (const BlockSend& x : s.sends) sent[x.to] = true;
    for (const BlockReceive& x : s.receives) received[x.from] = true;
  }
  if (steps.empty()) steps.emplace_back();
  for (size_t k = 0; k < n; ++k) {
    if (!sent[k]) steps.front().sends.push_back({k, 0, 0});
    if (!received[k]) steps.back().receives.push_back({k, 0, 0, Take::put});
  }
  return steps;
}

BlockSteps heard_by_root(size_t r, size_t n, size_t root, BlockSteps steps) {
  if (n == 1) return steps;
  if (r != root) {
    steps.front().sends.push_back({root, 0, 0});
    return steps;
  }
  std::vector<BlockReceive>& first = steps.at(1).receives;  // before what else comes of them, as it is sent
  for (size_t k = n; k-- > 0;)
    if (k != r) first.insert(first.begin(), {k, 0, 0, Take::put});
  return steps;
}

}  // namespace troupe::internal::collective
