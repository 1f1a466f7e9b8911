#include "ops/cpu/lapack/factorizations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "ops/cpu/lapack/lapack.h"

namespace troupe::ops::on_cpu {
namespace {

using Int = int32_t;

// Sizes of a batch of matrices [.., rows, columns].
struct Batch {
  int64_t count = 1;
  Int rows = 0, columns = 0;
  Shape front;
};

Batch batch_of(const char* name, const Tensor& a) {
  Batch b;
  const Shape& s = a.shape();
  for (int d = 0; d < s.rank() - 2; ++d) b.count *= s[d], b.front.push_back(s[d]);
  for (const int64_t size : {s[s.rank() - 2], s[s.rank() - 1]})
    if (size > std::numeric_limits<Int>::max() / 2)
      throw_invalid(fmt::format("[{}] matrices of {} rows or columns are too large for LAPACK", name, size));
  b.rows = static_cast<Int>(s[s.rank() - 2]), b.columns = static_cast<Int>(s[s.rank() - 1]);
  return b;
}

Shape shape_of(const Batch& b, std::initializer_list<int64_t> last) {
  Shape s = b.front;
  for (const int64_t n : last) s.push_back(n);
  return s;
}

Tensor by_columns(const Tensor& a) {
  Shape shape = a.shape(), strides = a.strides();
  const int r = shape.rank();
  std::swap(shape[r - 2], shape[r - 1]);
  std::swap(strides[r - 2], strides[r - 1]);
  return a.alias(shape, strides, a.storage_offset()).clone_data();
}

// Ones on the diagonals.
template <class T>
void set_to_identity(T* a, int64_t count, int64_t n) {
  for (int64_t i = 0; i < count; ++i)
    for (int64_t k = 0; k < n; ++k) a[(i * n + k) * n + k] = 1;
}

// It calls f(T{}) of float or double.
template <class F>
auto visit_real(const Tensor& a, F&& f) {
  return a.dtype() == float64 ? f(double{}) : f(float{});
}

std::string which(const Batch& b, int64_t i) {
  return b.count == 1 && b.front.empty() ? "" : fmt::format(" (batch element {})", i);
}

void check_info(const char* name, Int info) {
  if (info < 0) throw_error(ErrorKind::failed, fmt::format("[{}] LAPACK refuses argument {}", name, -info));
}

void refuse_singular(const char* name, const Batch& b, int64_t i, Int info) {
  check_info(name, info);
  if (info > 0)
    throw_invalid(fmt::format("[{}] the matrix{} is singular: element {} of the diagonal of U is zero", name,
                              which(b, i), info));
}

void require_finite(const char* name, const Tensor& a) {
  const bool finite = visit_real(a, [&](auto zero) {
    const auto* p = a.data<decltype(zero)>();
    return std::all_of(p, p + a.numel(), [](auto x) { return std::isfinite(x); });
  });
  if (!finite) throw_invalid(fmt::format("[{}] the input has elements that are not finite", name));
}

void refuse_endless(const char* name, const Batch& b, int64_t i, Int info) {
  check_info(name, info);
  if (info > 0)
    throw_error(ErrorKind::failed, fmt::format("[{}] of the matrix{} does not converge", name, which(b, i)));
}

// The room that a routine asks for: call(work, size) writes it to work[0].
template <class T, class F>
std::vector<T> room_for(F&& call) {
  T wanted = 1;
  call(&wanted, Int{-1});
  return std::vector<T>(std::max<size_t>(1, static_cast<size_t>(wanted)));
}

// Elements that are not of the triangle become 0; by columns: rows and columns are swapped.
template <class T>
void keep_lower(T* a, Int n) {
  for (Int i = 0; i < n; ++i) std::fill(a + int64_t{i} * n + i + 1, a + int64_t{i + 1} * n, T(0));
}

}  // namespace

Tensor cholesky_of(const char* name, const Tensor& a) {
  const Batch b = batch_of(name, a);
  const Tensor out = a.clone_data();
  visit_real(a, [&](auto zero) {
    using T = decltype(zero);
    const auto& l = lapack<T>(name);
    for (int64_t i = 0; i < b.count && b.rows; ++i) {
      T* const m = out.data<T>() + i * b.rows * b.rows;
      Int info = 0;
      l.potrf("U", &b.rows, m, &b.rows, &info, 1);
      check_info(name, info);
      if (info > 0)
        throw_invalid(
            fmt::format("[{}] the matrix{} is not positive-definite: the leading minor of order {} is not",
                        name, which(b, i), info));
      keep_lower(m, b.rows);
    }
  });
  return out;
}

Tensor inverse_of(const char* name, const Tensor& a) {
  const Batch b = batch_of(name, a);
  const Tensor out = a.clone_data();
  if (!b.rows || !b.count) return out;
  visit_real(a, [&](auto zero) {
    using T = decltype(zero);
    const auto& l = lapack<T>(name);
    std::vector<Int> pivots(static_cast<size_t>(b.rows));
    Int info = 0;
    T* m = out.data<T>();
    auto work = room_for<T>([&](T* w, Int n) { l.getri(&b.rows, m, &b.rows, pivots.data(), w, &n, &info); });
    const Int size = static_cast<Int>(work.size());
    for (int64_t i = 0; i < b.count; ++i, m += int64_t{b.rows} * b.rows) {
      l.getrf(&b.rows, &b.rows, m, &b.rows, pivots.data(), &info);
      refuse_singular(name, b, i, info);
      l.getri(&b.rows, m, &b.rows, pivots.data(), work.data(), &size, &info);
      refuse_singular(name, b, i, info);
    }
  });
  return out;
}

Tensor solution_of(const char* name, const Tensor& a, const Tensor& given) {
  const Batch b = batch_of(name, a), right = batch_of(name, given);
  const Tensor factors = a.clone_data(), x = by_columns(given);
  visit_real(a, [&](auto zero) {
    using T = decltype(zero);
    const auto& l = lapack<T>(name);
    std::vector<Int> pivots(static_cast<size_t>(b.rows));
    for (int64_t i = 0; i < b.count && b.rows; ++i) {
      T* const m = factors.data<T>() + i * b.rows * b.rows;
      Int info = 0;
      l.getrf(&b.rows, &b.rows, m, &b.rows, pivots.data(), &info);
      refuse_singular(name, b, i, info);
      if (!right.columns) continue;
      l.getrs("T", &b.rows, &right.columns, m, &b.rows, pivots.data(),
              x.data<T>() + i * b.rows * right.columns, &b.rows, &info, 1);
      check_info(name, info);
    }
  });
  return by_columns(x);
}

Determinants determinants_of(const char* name, const Tensor& a, bool logarithms) {
  const Batch b = batch_of(name, a);
  const Tensor factors = a.clone_data();
  const Determinants out{empty(b.front, a.dtype()), empty(b.front, a.dtype())};
  visit_real(a, [&](auto zero) {
    using T = decltype(zero);
    const auto& l = lapack<T>(name);
    std::vector<Int> pivots(static_cast<size_t>(b.rows));
    for (int64_t i = 0; i < b.count; ++i) {
      T* const m = factors.data<T>() + i * b.rows * b.rows;
      Int info = 0;
      if (b.rows) l.getrf(&b.rows, &b.rows, m, &b.rows, pivots.data(), &info);
      check_info(name, info);
      T sign = 1, size = logarithms ? T(0) : T(1);
      for (Int k = 0; k < b.rows; ++k) {
        const T d = m[int64_t{k} * b.rows + k];
        if (pivots[static_cast<size_t>(k)] != k + 1) sign = -sign;
        if (logarithms) {
          sign *= d > 0 ? T(1) : d < 0 ? T(-1) : d;  // 0 and NaN stay
          size += std::log(std::abs(d));
        } else {
          size *= d;
        }
      }
      out.sign.data<T>()[i] = sign;
      out.size.data<T>()[i] = logarithms ? size : sign * size;
    }
  });
  return out;
}

OrthogonalTriangular qr_of(const char* name, const Tensor& a, bool complete, bool with_q) {
  const Batch b = batch_of(name, a);
  const Int m = b.rows, n = b.columns, k = std::min(m, n), wide = complete ? m : k;
  const Tensor factors = by_columns(a);  // [.., n, m]
  const Tensor r = zeros(shape_of(b, {wide, n}), a.dtype());
  const Tensor q = with_q ? zeros(shape_of(b, {wide, m}), a.dtype()) : Tensor();
  visit_real(a, [&](auto zero) {
    using T = decltype(zero);
    const auto& l = lapack<T>(name);
    std::vector<T> tau(static_cast<size_t>(std::max(k, 1)));
    Int info = 0;
    const Int lda = std::max(m, 1);
    auto work =
        room_for<T>([&](T* w, Int s) { l.geqrf(&m, &n, factors.data<T>(), &lda, tau.data(), w, &s, &info); });
    if (with_q) {
      const auto more = room_for<T>(
          [&](T* w, Int s) { l.orgqr(&m, &wide, &k, q.data<T>(), &lda, tau.data(), w, &s, &info); });
      work.resize(std::max(work.size(), more.size()));
    }
    const Int size = static_cast<Int>(work.size());
    for (int64_t i = 0; i < b.count; ++i) {
      T* const f = factors.data<T>() + i * m * n;
      if (k) l.geqrf(&m, &n, f, &lda, tau.data(), work.data(), &size, &info);
      check_info(name, info);
      T* const upper = r.data<T>() + i * wide * n;
      for (Int row = 0; row < k; ++row)
        for (Int column = row; column < n; ++column)
          upper[int64_t{row} * n + column] = f[int64_t{column} * m + row];
      if (!with_q || !wide) continue;
      T* const to = q.data<T>() + i * wide * m;
      std::copy(f, f + int64_t{k} * m, to);
      l.orgqr(&m, &wide, &k, to, &lda, tau.data(), work.data(), &size, &info);
      check_info(name, info);
    }
  });
  return {with_q ? by_columns(q) : Tensor(), r};
}

SingularValues svd_of(const char* name, const Tensor& a, bool full, bool vectors) {
  const Batch b = batch_of(name, a);
  require_finite(name, a);
  const Int m = b.rows, n = b.columns, k = std::min(m, n), of_u = full ? m : k, of_v = full ? n : k;
  const Tensor memory = a.clone_data();  // by columns its transpose, [n, m], whose vectors are swapped
  SingularValues out{vectors ? zeros(shape_of(b, {m, of_u}), a.dtype()) : Tensor(),
                     empty(shape_of(b, {k}), a.dtype()),
                     vectors ? zeros(shape_of(b, {of_v, n}), a.dtype()) : Tensor()};
  if (!k && vectors && full)  // no singular values: any vectors
    visit_real(a, [&](auto zero) {
      set_to_identity(out.u.data<decltype(zero)>(), b.count, m);
      set_to_identity(out.vh.data<decltype(zero)>(), b.count, n);
    });
  if (!k || !b.count) return out;
  visit_real(a, [&](auto zero) {
    using T = decltype(zero);
    const auto& l = lapack<T>(name);
    const char* const job = !vectors ? "N" : full ? "A" : "S";
    std::vector<Int> integers(static_cast<size_t>(k) * 8);
    T* x = memory.data<T>();
    T nothing = 0, *u = vectors ? out.u.data<T>() : &nothing, *vh = vectors ? out.vh.data<T>() : &nothing;
    T* s = out.s.data<T>();
    Int info = 0;
    const auto run = [&](T* w, Int size) {
      l.gesdd(job, &n, &m, x, &n, s, vh, &n, u, &of_u, w, &size, integers.data(), &info, 1);
    };
    auto work = room_for<T>(run);
    for (int64_t i = 0; i < b.count; ++i) {
      run(work.data(), static_cast<Int>(work.size()));
      refuse_endless(name, b, i, info);
      x += int64_t{m} * n, s += k;
      if (vectors) u += int64_t{m} * of_u, vh += int64_t{of_v} * n;
    }
  });
  return out;
}

Eigenvalues eigh_of(const char* name, const Tensor& a, bool upper, bool vectors) {
  const Batch b = batch_of(name, a);
  require_finite(name, a);
  const Tensor memory = a.clone_data(), values = empty(shape_of(b, {b.rows}), a.dtype());
  if (b.rows && b.count)
    visit_real(a, [&](auto zero) {
      using T = decltype(zero);
      const auto& l = lapack<T>(name);
      T *x = memory.data<T>(), *w = values.data<T>();
      Int info = 0, integers = 1;
      const auto run = [&](T* work, Int size, Int* whole, Int count) {
        l.syevd(vectors ? "V" : "N", upper ? "L" : "U", &b.rows, x, &b.rows, w, work, &size, whole, &count,
                &info, 1, 1);
      };
      auto work = room_for<T>([&](T* room, Int size) { run(room, size, &integers, -1); });
      std::vector<Int> whole(static_cast<size_t>(std::max(integers, 1)));
      for (int64_t i = 0; i < b.count; ++i, x += int64_t{b.rows} * b.rows, w += b.rows) {
        run(work.data(), static_cast<Int>(work.size()), whole.data(), static_cast<Int>(whole.size()));
        refuse_endless(name, b, i, info);
      }
    });
  return {values, vectors ? by_columns(memory) : Tensor()};
}

}  // namespace troupe::ops::on_cpu
