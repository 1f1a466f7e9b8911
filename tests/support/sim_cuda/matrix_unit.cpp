#include "tests/support/sim_cuda/matrix_unit.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "tests/support/sim_cuda/machine.h"
#include "tests/support/sim_cuda/shim.h"

namespace sim_cuda {
namespace {

MatrixCounts counts;

// What a lane brings to a meeting. The first lane that goes on does the work of all: the others' stacks live.
struct Lane {
  std::span<const Product> products = {};
  uint32_t* to = nullptr;
  const std::byte* row = nullptr;
  bool done = false;
};

Lane& lane_at(unsigned lane) {
  Lane* p;
  std::memcpy(&p, lane_value(lane), sizeof p);
  return *p;
}

// Reads of a warp since it met.
constexpr unsigned kReads = 256;
struct Reads {
  struct One {
    unsigned lanes = 0;
    uintptr_t words[32];
  };
  unsigned of_lane[32] = {};
  One all[kReads];
};
Reads reads[32];
bool any_reads = false;

// f(lanes) once, when all 32 have come.
template <class F>
void together(Lane& mine, const Place& at, F&& f) {
  Lane* const me = &mine;
  warp_meet(~0u, &me, sizeof me, at);
  if (mine.done) return;
  Lane* lanes[32];
  for (unsigned l = 0; l < 32; ++l) {
    if (!lane_value(l)) trap("a lane is missing: the matrix unit needs whole warps", at);
    lanes[l] = &lane_at(l);
  }
  f(lanes);
  for (unsigned& n : reads[thread_number() / 32].of_lane) n = 0;
  for (Lane* l : lanes) l->done = true;
}

float half_of(Factor type, uint32_t bits, int which) {
  const auto half = static_cast<uint16_t>(bits >> (16 * which));
  if (type == Factor::bfloat16) return std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
  __half value;
  std::memcpy(&value, &half, sizeof value);
  return static_cast<float>(value);
}

// The unit reads 19 bits of a float: what a program has not rounded is cut off.
float tf32_of(uint32_t bits) { return std::bit_cast<float>(bits & 0xffffe000u); }

void multiply_halves(Factor type, const Product* const* lanes) {
  float a[16][16], b[16][8];
  for (int l = 0; l < 32; ++l) {
    const int g = l / 4, t = l % 4;
    for (int i = 0; i < 4; ++i)
      for (int h = 0; h < 2; ++h) a[g + i % 2 * 8][2 * t + h + i / 2 * 8] = half_of(type, lanes[l]->a[i], h);
    for (int i = 0; i < 2; ++i)
      for (int h = 0; h < 2; ++h) b[2 * t + h + i * 8][g] = half_of(type, lanes[l]->b[i], h);
  }
  for (int l = 0; l < 32; ++l)
    for (int e = 0; e < 4; ++e) {
      float sum = 0;
      for (int k = 0; k < 16; ++k) sum += a[l / 4 + e / 2 * 8][k] * b[k][l % 4 * 2 + e % 2];
      lanes[l]->d[e] += sum;
    }
}

void multiply_tf32(const Product* const* lanes) {
  float a[16][8], b[8][8];
  for (int l = 0; l < 32; ++l) {
    const int g = l / 4, t = l % 4;
    for (int i = 0; i < 4; ++i) a[g + i % 2 * 8][t + i / 2 * 4] = tf32_of(lanes[l]->a[i]);
    for (int i = 0; i < 2; ++i) b[t + i * 4][g] = tf32_of(lanes[l]->b[i]);
  }
  for (int l = 0; l < 32; ++l)
    for (int e = 0; e < 4; ++e) {
      float sum = 0;
      for (int k = 0; k < 8; ++k) sum += a[l / 4 + e / 2 * 8][k] * b[k][l % 4 * 2 + e % 2];
      lanes[l]->d[e] += sum;
    }
}

// Passes over the 32 banks of 4 bytes beyond one, for lanes that read at once; the same word is read once.
uint64_t extra_passes(const uintptr_t* words, int n) {
  int of_bank[32] = {}, most = 1;
  for (int i = 0; i < n; ++i)
    if (std::find(words, words + i, words[i]) == words + i) most = std::max(most, ++of_bank[words[i] % 32]);
  return static_cast<uint64_t>(most - 1);
}

struct Pending {
  void* to;
  const void* from;
  unsigned bytes;
  bool there;
};
struct Copies {
  std::vector<Pending> waiting;
  std::vector<size_t> groups;  // how many of `waiting` are in each, the oldest first
  size_t open = 0;             // those of no group yet
};
Copies copies[1024];
std::vector<unsigned> have_copies;

}  // namespace

MatrixCounts matrix_counts() { return counts; }
void reset_matrix_counts() { counts = {}; }

void multiply(Factor type, std::span<const Product> products, const Place& at) {
  Lane mine{.products = products};
  together(mine, at, [&](Lane** lanes) {
    for (size_t i = 0; i < products.size(); ++i) {
      const Product* of[32];
      for (int l = 0; l < 32; ++l) of[l] = &lanes[l]->products[i];
      type == Factor::tf32 ? multiply_tf32(of) : multiply_halves(type, of);
    }
    counts.products += products.size();
  });
}

void load_matrices(uint32_t (&r)[4], const void* row, bool transposed, const Place& at) {
  if (reinterpret_cast<uintptr_t>(row) % 16)
    trap("ldmatrix: a row does not begin at a multiple of 16 bytes", at);
  Lane mine{.to = r, .row = static_cast<const std::byte*>(row)};
  together(mine, at, [&](Lane** lanes) {
    for (int i = 0; i < 4; ++i) {  // each matrix is a pass of its own
      uintptr_t words[32];
      for (int k = 0; k < 32; ++k)
        words[k] = reinterpret_cast<uintptr_t>(lanes[8 * i + k / 4]->row) / 4 + k % 4;
      counts.conflicts += extra_passes(words, 32);
      for (int l = 0; l < 32; ++l) {
        const int g = l / 4, t = l % 4;
        auto* to = reinterpret_cast<std::byte*>(&lanes[l]->to[i]);
        if (!transposed) {
          std::memcpy(to, lanes[8 * i + g]->row + 4 * t, 4);
        } else {
          for (int h = 0; h < 2; ++h) std::memcpy(to + 2 * h, lanes[8 * i + 2 * t + h]->row + 2 * g, 2);
        }
      }
    }
    ++counts.loads;
  });
}

void count_shared_read(const void* p, unsigned bytes) {
  const unsigned number = thread_number(), lane = number % 32;
  Reads& r = reads[number / 32];
  any_reads = true;
  if (r.of_lane[lane] == kReads) return;  // too far ahead of the others
  Reads::One& one = r.all[r.of_lane[lane]++];
  one.words[lane] = reinterpret_cast<uintptr_t>(p) / 4;
  if (++one.lanes < 32) return;
  one.lanes = 0;
  const unsigned each = bytes / 4, at_once = 32 / each;  // 128 bytes in a pass
  for (unsigned first = 0; first < 32; first += at_once) {
    uintptr_t words[32];
    for (unsigned k = 0; k < 32; ++k) words[k] = one.words[first + k / each] + k % each;
    counts.conflicts += extra_passes(words, 32);
  }
}

void copy_async(void* to, const void* from, unsigned bytes, bool there, const Place& at) {
  if (reinterpret_cast<uintptr_t>(to) % bytes || reinterpret_cast<uintptr_t>(from) % bytes)
    trap("cp.async: an address is no multiple of the size", at);
  std::memset(to, kPoison, bytes);
  Copies& c = copies[thread_number()];
  if (c.waiting.empty()) have_copies.push_back(thread_number());
  c.waiting.push_back({to, from, bytes, there});
  ++c.open;
  counts.copied_bytes += there ? bytes : 0;
}
void commit_copies() {
  Copies& c = copies[thread_number()];
  c.groups.push_back(std::exchange(c.open, 0));
}
void wait_for_copies(unsigned n) {
  Copies& c = copies[thread_number()];
  if (c.groups.size() <= n) return;
  const auto last = c.groups.end() - n;
  size_t count = 0;
  for (auto g = c.groups.begin(); g != last; ++g) count += *g;
  for (size_t i = 0; i < count; ++i) {
    const Pending& p = c.waiting[i];
    p.there ? void(std::memcpy(p.to, p.from, p.bytes)) : void(std::memset(p.to, 0, p.bytes));
  }
  c.waiting.erase(c.waiting.begin(), c.waiting.begin() + static_cast<std::ptrdiff_t>(count));
  c.groups.erase(c.groups.begin(), last);
}

bool has_copies(unsigned thread) { return !copies[thread].waiting.empty(); }
void forget_copies() {
  for (const unsigned thread : have_copies) copies[thread] = {};
  have_copies.clear();
  if (!std::exchange(any_reads, false)) return;
  for (Reads& r : reads) {
    for (unsigned& n : r.of_lane) n = 0;
    for (Reads::One& one : r.all) one.lanes = 0;
  }
}

}  // namespace sim_cuda
