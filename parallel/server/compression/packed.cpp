#include "parallel/server/compression/packed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "core/graph/node.h"
#include "core/tensor/creation.h"
#include "ops/cpu/loops/simd.h"
#include "ops/inplace.h"
#include "ops/view.h"
#include "optim/gradient_norm.h"

namespace troupe::parallel {
namespace {

constexpr int64_t kWord = 64;      // bits
constexpr int kHalf = 32;          // of a word: as many as elements have bits, so that loops become vectors
constexpr int kLanes = 16;         // running sums, so that the order of additions is the same everywhere
constexpr size_t kBuckets = 4096;  // of sizes, by exponent and first digits

int64_t words(int64_t n) { return (n + kWord - 1) / kWord; }
int64_t top_count(double fraction, int64_t n) {
  return std::min(static_cast<int64_t>(std::ceil(fraction * static_cast<double>(n))), n);
}

template <class F>
void with_type(const Tensor& t, F&& run) {
  t.dtype() == float64 ? run(double{}) : run(float{});
}

// Bits of |x|, in the order of sizes.
uint32_t size_of(float x) { return std::bit_cast<uint32_t>(x) & 0x7fffffffu; }
uint64_t size_of(double x) { return std::bit_cast<uint64_t>(x) & 0x7fffffffffffffffu; }

// The k-th largest size, k >= 1, and how many are larger.
template <class T>
auto kth_size(const T* x, int64_t n, int64_t k) {
  using Size = decltype(size_of(T{}));
  constexpr int kShift = sizeof(T) * 8 - 1 - 12;
  std::array<int64_t, kBuckets> counts{};
  for (int64_t i = 0; i < n; ++i) ++counts[size_of(x[i]) >> kShift];
  size_t bucket = kBuckets - 1;
  int64_t above = 0;
  while (above + counts[bucket] < k) above += counts[bucket--];
  std::vector<Size> in_bucket;
  in_bucket.reserve(static_cast<size_t>(counts[bucket]));
  for (int64_t i = 0; i < n; ++i)
    if (size_of(x[i]) >> kShift == bucket) in_bucket.push_back(size_of(x[i]));
  const auto at = in_bucket.begin() + (k - above - 1);
  std::nth_element(in_bucket.begin(), at, in_bucket.end(), std::greater<>());
  const Size size = *at;
  for (const Size s : in_bucket) above += s > size;
  return std::pair(size, above);
}

// Takes the k largest out of x, which keeps the rest; of equal sizes those that come first.
template <class T>
Tensors take_top(const Tensor& tensor, int64_t k) {
  T* x = tensor.data<T>();
  const auto [size, above] = kth_size(x, tensor.numel(), k);
  const Tensor places = zeros({(k + 1) / 2}, int64), values = empty({k}, tensor.dtype());
  T* value = values.data<T>();
  int64_t at = 0, equal = k - above;
  for (int64_t i = 0; at < k; ++i) {
    const auto s = size_of(x[i]);
    if (s < size || (s == size && equal-- <= 0)) continue;
    places.data<int64_t>()[at / 2] |= i << (32 * (at % 2));
    value[at++] = x[i];
    x[i] = 0;
  }
  return {places, values};
}

// Sets bits where x is not negative; gives their number. `word` starts with zeros.
template <class T>
int64_t pack_signs(const T* x, int64_t n, int64_t* word) {
  int64_t count = 0;
  ops::on_cpu::vectorized([x, n, word, &count]() __attribute__((always_inline)) {
    int64_t set = 0;
    for (int64_t i = 0; i < n; i += kHalf) {
      uint32_t bits = 0;
      if (i + kHalf <= n)
        for (int j = 0; j < kHalf; ++j) bits |= static_cast<uint32_t>(x[i + j] >= 0) << j;
      else
        for (int64_t j = 0; i + j < n; ++j) bits |= static_cast<uint32_t>(x[i + j] >= 0) << j;
      word[i / kWord] |= static_cast<int64_t>(uint64_t{bits} << (i % kWord));
      set += std::popcount(bits);
    }
    count = set;
  });
  return count;
}

// Takes the means of both signs out of x, which keeps what they are off.
template <class T>
Tensors take_signs(const Tensor& tensor) {
  const int64_t n = tensor.numel();
  T* x = tensor.data<T>();
  const Tensor signs = zeros({words(n)}, int64), means = empty({2}, tensor.dtype());
  int64_t* word = signs.data<int64_t>();
  double sums[2][kLanes] = {};
  ops::on_cpu::vectorized([x, n, &sums]() __attribute__((always_inline)) {
    double below[kLanes] = {}, above[kLanes] = {};
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
      for (int l = 0; l < kLanes; ++l) {
        const double v = static_cast<double>(x[i + l]);
        below[l] += std::min(v, 0.), above[l] += std::max(v, 0.);
      }
    for (int l = 0; i < n; ++i, ++l) (x[i] < 0 ? below : above)[l] += static_cast<double>(x[i]);
    for (int l = 0; l < kLanes; ++l) sums[0][l] = below[l], sums[1][l] = above[l];
  });
  const int64_t positive = pack_signs(x, n, word);
  T mean[2];
  for (const int sign : {0, 1}) {
    double sum = 0;
    for (const double lane : sums[sign]) sum += lane;
    const int64_t count = sign ? positive : n - positive;
    means.data<T>()[sign] = mean[sign] = count ? static_cast<T>(sum / static_cast<double>(count)) : T{0};
  }
  const T less = mean[0], more = mean[1];
  ops::on_cpu::vectorized([=]() __attribute__((always_inline)) {
    for (int64_t i = 0; i < n; ++i) x[i] -= x[i] >= 0 ? more : less;
  });
  return {signs, means};
}

template <class T>
void put_signs(const Tensor& signs, const Tensor& means, const Tensor& out) {
  const int64_t n = out.numel();
  const T less = means.data<T>()[0], more = means.data<T>()[1];
  const int64_t* word = signs.data<int64_t>();
  T* x = out.data<T>();
  ops::on_cpu::vectorized([=]() __attribute__((always_inline)) {
    int64_t i = 0;
    for (; i + kHalf <= n; i += kHalf) {
      const auto bits = static_cast<uint32_t>(static_cast<uint64_t>(word[i / kWord]) >> (i % kWord));
      for (int j = 0; j < kHalf; ++j) x[i + j] = bits & (1u << j) ? more : less;
    }
    for (; i < n; ++i) x[i] = static_cast<uint64_t>(word[i / kWord]) >> (i % kWord) & 1 ? more : less;
  });
}

Tensors take(const Tensor& x, const Compression& how) {
  Tensors parts;
  with_type(x, [&]<class T>(T) {
    parts = how.kind == Compression::Kind::topk ? take_top<T>(x, top_count(how.fraction, x.numel()))
                                                : take_signs<T>(x);
  });
  return parts;
}

}  // namespace

int64_t Packed::bytes() const {
  int64_t sum = 0;
  for (const Tensor& part : parts) sum += part.defined() ? static_cast<int64_t>(part.nbytes()) : 0;
  return sum;
}

int64_t packed_bytes(const Compression& how, int64_t n, DType dtype) {
  const auto item = static_cast<int64_t>(item_size(dtype));
  const int64_t k = top_count(how.fraction, n);
  switch (how.kind) {
    case Compression::Kind::fp16:
    case Compression::Kind::bf16:
      return 2 * n;
    case Compression::Kind::topk:
      return (k + 1) / 2 * 8 + k * item;
    case Compression::Kind::onebit:
      return words(n) * 8 + 2 * item;
    case Compression::Kind::none:
    case Compression::Kind::own:
      break;
  }
  return n * item;
}

Packed pack(const Tensors& tensors, const Compression& how, Tensors* residual) {
  NoGradGuard guard;
  Packed out;
  if (residual && residual->empty()) residual->resize(tensors.size());
  const auto send = [&](PackedForm form, const Tensors& parts) {
    out.forms.push_back(static_cast<int64_t>(form));
    out.parts.insert(out.parts.end(), parts.begin(), parts.end());
  };
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& t = tensors[i];
    Tensor* left = residual && t.defined() ? &(*residual)[i] : nullptr;
    const bool owes = left && left->defined();
    const DType dtype = t.defined() ? compute_dtype(t.dtype()) : float32;
    const bool smaller = t.defined() &&
                         packed_bytes(how, t.numel(), dtype) < static_cast<int64_t>(t.nbytes()) &&
                         t.numel() <= std::numeric_limits<uint32_t>::max();
    if (!owes && !smaller) {
      send(PackedForm::plain, {t});
      continue;
    }
    if (!how.keeps_residual() && !owes) {
      const Tensor half = ops::to(t.detach(), how.kind == Compression::Kind::fp16 ? float16 : bfloat16);
      const bool fits = optim::all_finite(half);
      send(fits ? PackedForm::half : PackedForm::plain, {fits ? half.contiguous_data() : t});
      continue;
    }
    const Tensor x = ops::to(t.detach(), dtype).clone_data();
    if (owes) ops::add_(x, *left);
    if (!optim::all_finite(x)) {
      send(PackedForm::plain, {t});
    } else if (smaller && how.keeps_residual()) {
      send(how.kind == Compression::Kind::topk ? PackedForm::top : PackedForm::signs, take(x, how));
      if (left) *left = x;
    } else {
      send(PackedForm::plain, {x});
      *left = Tensor();
    }
  }
  if (std::all_of(out.forms.begin(), out.forms.end(), [](int64_t f) { return f == 0; })) out.forms.clear();
  return out;
}

namespace {

class Unpacker {
 public:
  Unpacker(Packed packed, const std::vector<Whole>& wholes) : packed_(std::move(packed)), wholes_(wholes) {}

  Tensors all() {
    check(packed_.forms.size() == wholes_.size(), "another number of tensors was packed");
    Tensors out;
    for (; tensor_ < wholes_.size(); ++tensor_) out.push_back(next());
    check(at_ == packed_.parts.size(), "there are more parts");
    return out;
  }

 private:
  void check(bool good, const char* what) const {
    if (!good)
      throw_invalid(
          fmt::format("[compression] tensor {} of {} does not unpack: {}", tensor_, wholes_.size(), what));
  }
  Tensor part() {
    check(at_ < packed_.parts.size(), "a part is missing");
    return packed_.parts[at_++];
  }
  Tensor part(DType dtype, int64_t n, const char* what) {
    const Tensor t = part();
    check(t.defined() && t.dtype() == dtype && t.dim() == 1 && t.numel() == n, what);
    return t.contiguous_data();
  }

  Tensor next() {
    switch (static_cast<PackedForm>(packed_.forms[tensor_])) {
      case PackedForm::plain:
        return part();
      case PackedForm::half:
        return half();
      case PackedForm::top:
        return top();
      case PackedForm::signs:
        return signs();
    }
    check(false, "there is no such form");
    return {};
  }
  Tensor half() {
    const Tensor t = part();
    check(t.defined() && is_half(t.dtype()) && t.shape() == wholes_[tensor_].shape,
          "expected bfloat16 or float16 of its shape");
    return ops::to(t, wholes_[tensor_].dtype);
  }
  Tensor top() {
    const auto& [dtype, shape] = wholes_[tensor_];
    check(at_ + 1 < packed_.parts.size() && packed_.parts[at_ + 1].defined(), "a part is missing");
    const int64_t k = packed_.parts[at_ + 1].numel();
    const Tensor places = part(int64, (k + 1) / 2, "expected two places in each int64"),
                 values = part(dtype, k, "expected elements of its dtype");
    Tensor whole = zeros(shape, dtype);
    const auto place = [&](int64_t j) {
      return static_cast<int64_t>(static_cast<uint64_t>(places.data<int64_t>()[j / 2]) >> (32 * (j % 2)) &
                                  0xffffffffu);
    };
    for (int64_t j = 0; j < k; ++j)
      check(place(j) < shape.numel() && (j == 0 || place(j - 1) < place(j)), "places out of range or order");
    with_type(whole, [&]<class T>(T) {
      for (int64_t j = 0; j < k; ++j) whole.data<T>()[place(j)] = values.data<T>()[j];
    });
    return whole;
  }
  Tensor signs() {
    const auto& [dtype, shape] = wholes_[tensor_];
    const Tensor signs = part(int64, words(shape.numel()), "expected a sign for each element"),
                 means = part(dtype, 2, "expected two means");
    Tensor whole = empty(shape, dtype);
    with_type(whole, [&]<class T>(T) { put_signs<T>(signs, means, whole); });
    return whole;
  }

  const Packed packed_;
  const std::vector<Whole>& wholes_;
  size_t tensor_ = 0, at_ = 0;  // of the wholes, of the parts
};

}  // namespace

Tensors unpack(Packed packed, const std::vector<Whole>& wholes) {
  if (packed.forms.empty()) return std::move(packed.parts);
  const NoGradGuard guard;
  return Unpacker(std::move(packed), wholes).all();
}

}  // namespace troupe::parallel
