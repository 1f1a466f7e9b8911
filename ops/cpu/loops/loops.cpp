#include "ops/cpu/loops/loops.h"

#include <cstring>

#include "core/memory/streaming_copy.h"

namespace troupe::ops::on_cpu {
namespace {

// Elements that lie apart are brought together in pieces of this many, so that an operation has loops over
// neighbours only.
constexpr int64_t kPiece = 256;
constexpr size_t kLargestElement = 8;
using Piece = std::byte[kPiece * kLargestElement];

// Elements of a tensor, by their size alone.
struct Elements {
  std::byte* first;
  size_t size;
  std::byte* at(int64_t offset) const { return first + offset * static_cast<int64_t>(size); }
};
Elements elements(const void* first, const Tensor& t) {
  return {static_cast<std::byte*>(const_cast<void*>(first)), item_size(t.dtype())};
}

template <class T>
void copy_apart(std::byte* to, int64_t to_step, const std::byte* from, int64_t from_step, int64_t n) {
  constexpr auto kSize = static_cast<int64_t>(sizeof(T));
  for (int64_t i = 0; i < n; ++i)
    std::memcpy(to + i * to_step * kSize, from + i * from_step * kSize, sizeof(T));
}

// Copies n elements of `size` bytes whose places are a number of elements apart.
void copy_apart(size_t size, std::byte* to, int64_t to_step, const std::byte* from, int64_t from_step,
                int64_t n) {
  if (to_step == 1 && from_step == 1)
    std::memcpy(to, from, static_cast<size_t>(n) * size);
  else if (size == 1)
    copy_apart<uint8_t>(to, to_step, from, from_step, n);
  else if (size == 2)
    copy_apart<uint16_t>(to, to_step, from, from_step, n);
  else if (size == 4)
    copy_apart<uint32_t>(to, to_step, from, from_step, n);
  else
    copy_apart<uint64_t>(to, to_step, from, from_step, n);
}

// f(to, begin, end) writes elements `begin` to `end` of a dense result of n elements to `to`: there or, of a
// large result, in a buffer from which they go past the caches.
template <class F>
void write_dense(const Elements& out, int64_t n, const F& f) {
  const bool large = static_cast<size_t>(n) * out.size >= kLargerThanCaches &&
                     reinterpret_cast<uintptr_t>(out.first) % 16 == 0;
  parallel_ranges(n, [&](int64_t begin, int64_t end) {
    if (!large) return f(out.at(begin), begin, end);
    alignas(64) std::byte buffer[4096];
    const auto chunk = static_cast<int64_t>(sizeof buffer / out.size);
    for (int64_t i = begin; i < end; i += chunk) {
      const int64_t to = std::min(end, i + chunk);
      f(buffer, i, to);
      copy_past_caches(out.at(i), buffer, static_cast<size_t>(to - i) * out.size);
    }
  });
}

// compute(made, operands, n) for all elements of tensors that lie apart: the operands (all of `runs` but the
// first, which is the result) are copied to pieces of neighbours, and the result back from one.
template <size_t N, class F>
void in_pieces(const Runs<N>& runs, const std::array<Elements, N>& tensors, const F& compute) {
  parallel_ranges(runs.numel(), [&](int64_t begin, int64_t end) {
    alignas(64) Piece pieces[N];
    for (int64_t i = begin; i < end; i += kPiece) {
      const int64_t n = std::min(kPiece, end - i);
      int64_t done = 0;
      runs.visit(i, i + n, [&](const auto& at, int64_t count, const auto& step) {
        for (size_t k = 1; k < N; ++k) {
          const size_t size = tensors[k].size;
          copy_apart(size, pieces[k] + static_cast<size_t>(done) * size, 1, tensors[k].at(at[k]), step[k],
                     count);
        }
        done += count;
      });
      compute(pieces, n);
      done = 0;
      runs.visit(i, i + n, [&](const auto& at, int64_t count, const auto& step) {
        const size_t size = tensors[0].size;
        copy_apart(size, tensors[0].at(at[0]), step[0], pieces[0] + static_cast<size_t>(done) * size, 1,
                   count);
        done += count;
      });
    }
  });
}

}  // namespace

void run(const UnaryLoop& loop, const Tensor& x, const Tensor& out) {
  const Elements from = elements(loop.x, x), to = elements(loop.out, out);
  if (x.is_contiguous() && out.is_contiguous())
    return write_dense(to, out.numel(), [&](std::byte* made, int64_t begin, int64_t end) {
      loop.neighbours(loop.f, made, from.at(begin), end - begin);
    });
  const Runs<2> runs(out.shape(), {out.strides(), x.strides()});
  if (runs.steps()[0] == 1 && runs.steps()[1] == 1)
    return parallel_ranges(runs.numel(), [&](int64_t begin, int64_t end) {
      runs.visit(begin, end, [&](const auto& at, int64_t n, const auto&) {
        loop.neighbours(loop.f, to.at(at[0]), from.at(at[1]), n);
      });
    });
  in_pieces<2>(runs, {to, from},
               [&](Piece* pieces, int64_t n) { loop.neighbours(loop.f, pieces[0], pieces[1], n); });
}

void run(const BinaryLoop& loop, const Tensor& x, const Tensor& y, const Tensor& out) {
  using One = BinaryLoop::One;
  const Elements left = elements(loop.x, x), right = elements(loop.y, y), to = elements(loop.out, out);
  const Shape& shape = out.shape();
  if (x.is_contiguous() && y.is_contiguous() && x.shape() == shape &&
      y.shape() == shape)  // all dense: one run
    return write_dense(to, shape.numel(), [&](std::byte* made, int64_t begin, int64_t end) {
      loop.neighbours(loop.f, made, left.at(begin), right.at(begin), end - begin, One::none);
    });
  const Runs<3> runs(shape, {out.strides(), broadcast_strides(x, shape), broadcast_strides(y, shape)});
  const auto [so, sx, sy] = runs.steps();
  if (so == 1 && (sx | sy) == 1) {  // neighbours, or one of them beside an operand that is one element
    const One one = sx == 0 ? One::x : sy == 0 ? One::y : One::none;
    return parallel_ranges(runs.numel(), [&](int64_t begin, int64_t end) {
      runs.visit(begin, end, [&](const auto& at, int64_t n, const auto&) {
        loop.neighbours(loop.f, to.at(at[0]), left.at(at[1]), right.at(at[2]), n, one);
      });
    });
  }
  in_pieces<3>(runs, {to, left, right}, [&](Piece* pieces, int64_t n) {
    loop.neighbours(loop.f, pieces[0], pieces[1], pieces[2], n, One::none);
  });
}

void run(const UpdateLoop& loop, const Tensor& a, const Tensor& b, const Tensor& c) {
  const Elements to = elements(loop.a, a), left = elements(loop.b, b), right = elements(loop.c, c);
  const Runs<4> runs(a.shape(), {a.strides(), a.strides(), b.strides(), c.strides()});
  const auto& step = runs.steps();
  if (step[0] == 1 && step[2] == 1 && step[3] == 1)
    return parallel_ranges(runs.numel(), [&](int64_t begin, int64_t end) {
      runs.visit(begin, end, [&](const auto& at, int64_t n, const auto&) {
        loop.neighbours(loop.f, to.at(at[0]), left.at(at[2]), right.at(at[3]), n);
      });
    });
  in_pieces<4>(runs, {to, to, left, right}, [&](Piece* pieces, int64_t n) {
    loop.neighbours(loop.f, pieces[1], pieces[2], pieces[3], n);
    std::memcpy(pieces[0], pieces[1], static_cast<size_t>(n) * to.size);
  });
}

}  // namespace troupe::ops::on_cpu
