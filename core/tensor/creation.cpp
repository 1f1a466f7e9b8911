#include "core/tensor/creation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "core/base/error.h"
#include "core/memory/backend.h"
#include "core/tensor/elements.h"

namespace troupe {
namespace {

Tensor marked(Tensor t, const TensorOptions& options) {
  if (options.requires_grad_on()) t.requires_grad_();
  return t;
}

// Of numbers: bool of bools, int64 of integers and bools, else float32.
DType dtype_of_numbers(std::span<const Scalar> numbers) {
  bool all_bool = !numbers.empty(), whole = all_bool;
  for (const Scalar& n : numbers) all_bool &= n.is_boolean(), whole &= !n.is_floating();
  return all_bool ? boolean : whole ? int64 : kDefaultDType;
}

// Numbers that `at` gives for 0, 1, ...: made on the host, and copied to where they are wanted.
template <class At>
Tensor filled(const Shape& shape, DType dtype, Device device, At at) {
  Tensor t = empty(shape, dtype);
  visit_dtype(dtype, [&](auto zero) {
    using T = decltype(zero);
    T* to = t.data<T>();
    for (int64_t i = 0, n = t.numel(); i < n; ++i) to[i] = convert<T>(at(i));
  });
  return t.data_on(device);
}

}  // namespace

TensorData::TensorData(std::initializer_list<TensorData> list) : shape_{static_cast<int64_t>(list.size())} {
  for (const TensorData& part : list) {
    if (part.shape_ != list.begin()->shape_)
      throw_invalid("[tensor] lists beside each other must have one length: got sizes " +
                    list.begin()->shape_.str() + " and " + part.shape_.str());
    values_.insert(values_.end(), part.values_.begin(), part.values_.end());
  }
  if (list.size())
    for (int64_t size : list.begin()->shape_) shape_.push_back(size);
}

Tensor tensor(const TensorData& data, const TensorOptions& options) {
  const DType t = options.dtype_or(dtype_of_numbers(data.values()));
  for (const Scalar& number : data.values()) require_fits(number, t, "tensor");
  Tensor host = empty(data.shape(), t);
  visit_dtype(t, [&](auto zero) {
    auto* to = host.data<decltype(zero)>();
    for (const Scalar& number : data.values()) *to++ = number.to<decltype(zero)>();
  });
  return marked(host.data_on(options.device_or(cpu)), options);
}

Tensor tensor_of(const Tensor& elements, DType standard, const TensorOptions& options) {
  const DType from = elements.dtype(), t = options.dtype_or(standard);
  Tensor host = elements;
  if (t != from) {
    visit_dtype(from, [&](auto zero) {
      using T = decltype(zero);
      for (const T *at = elements.data<T>(), *end = at + elements.numel(); at != end; ++at)
        require_fits(convert<std::conditional_t<std::is_arithmetic_v<T>, T, float>>(*at), t, "tensor");
    });
    copy_elements(host = empty(elements.shape(), t), elements);
  }
  return marked(host.data_on(options.device_or(cpu)), options);
}

Tensor empty(const Shape& size, const TensorOptions& options) {
  const DType t = options.dtype_or(kDefaultDType);
  Shape strides = size;
  int64_t bytes = static_cast<int64_t>(item_size(t)), step = 1;
  bool fits = true, none = false;
  for (int i = size.rank() - 1; i >= 0; --i) {
    if (size[i] < 0) throw_invalid("[tensor] negative size in shape " + size.str());
    strides[i] = step;
    none |= size[i] == 0;
    // A size of 0 counts as 1 here: strides must fit too.
    fits &= !__builtin_mul_overflow(step, std::max<int64_t>(size[i], 1), &step);
  }
  if (!fits || __builtin_mul_overflow(bytes, step, &bytes))
    throw_invalid("[tensor] shape " + size.str() + " has more bytes than can be counted");
  if (none) bytes = 0;
  Tensor out(make_ref<TensorImpl>(Storage::allocate(static_cast<size_t>(bytes), options.device_or(cpu)), size,
                                  strides, 0, t, true));
  if (options.requires_grad_on()) [[unlikely]]
    out.requires_grad_();
  return out;
}

Tensor zeros(const Shape& size, const TensorOptions& options) {
  Tensor t = empty(size, options);
  backend_of(t.device()).fill(t.storage()->data(), 0, t.storage()->size(), t.device());
  return t;
}

Tensor ones(const Shape& size, const TensorOptions& options) {
  return full(size, 1, options.dtype(options.dtype_or(kDefaultDType)));
}

Tensor full(const Shape& size, Scalar fill_value, const TensorOptions& options) {
  const DType t = options.dtype_or(dtype_of_numbers({&fill_value, 1}));
  require_fits(fill_value, t, "full");
  Tensor out = empty(size, options.dtype(t).requires_grad(false));
  fill_elements(out, fill_value);
  return marked(out, options);
}

Tensor eye(int64_t n, const TensorOptions& options) { return eye(n, n, options); }

Tensor eye(int64_t n, int64_t m, const TensorOptions& options) {
  if (n < 0 || m < 0)
    throw_invalid("[eye] sizes must be at least 0, got " + std::to_string(n) + " and " + std::to_string(m));
  return marked(filled({n, m}, options.dtype_or(kDefaultDType), options.device_or(cpu),
                       [&](int64_t i) { return static_cast<double>(i / m == i % m); }),
                options);
}

Tensor arange(Scalar end, const TensorOptions& options) { return arange(0, end, 1, options); }

Tensor arange(Scalar start, Scalar end, const TensorOptions& options) {
  return arange(start, end, 1, options);
}

Tensor arange(Scalar start, Scalar end, Scalar step, const TensorOptions& options) {
  const DType t = options.dtype_or(
      dtype_of_numbers(std::array{start, end, step}) == kDefaultDType ? kDefaultDType : int64);
  const double from = start.to<double>(), by = step.to<double>(), length = (end.to<double>() - from) / by;
  if (t == boolean) throw_invalid("[arange] is not for bool: use .to(boolean) on its result");
  if (!std::isfinite(length) || length < 0)
    throw_invalid("[arange] step " + step.str() + " does not lead from " + start.str() + " to " + end.str());
  if (length > 0x1p60)
    throw_invalid("[arange] from " + start.str() + " to " + end.str() + " in steps of " + step.str() +
                  " there are more numbers than a tensor can have");
  if (start.is_floating() || step.is_floating() || end.is_floating()) {
    const auto count = static_cast<int64_t>(std::ceil(length));
    if (!is_floating(t)) {  // as many as there would be, of the start and the step without fractions
      const auto first = start.to<int64_t>(), stride = step.to<int64_t>();
      if (count)
        require_fits(std::trunc(from) + static_cast<double>(count - 1) * std::trunc(by), t, "arange");
      return marked(filled({count}, t, options.device_or(cpu), [&](int64_t i) { return first + i * stride; }),
                    options);
    }
    if (count) require_fits(from + static_cast<double>(count - 1) * by, t, "arange");
    return marked(filled({count}, t, options.device_or(cpu),
                         [&](int64_t i) { return from + static_cast<double>(i) * by; }),
                  options);
  }
  // Integers keep all digits.
  const __int128 first = start.to<int64_t>(), stride = step.to<int64_t>();
  const __int128 distance = end.to<int64_t>() - first, away = stride > 0 ? stride - 1 : stride + 1;
  const auto count = static_cast<int64_t>((distance + away) / stride);
  if (count) require_fits(static_cast<int64_t>(first + (count - 1) * stride), t, "arange");
  return marked(filled({count}, t, options.device_or(cpu),
                       [&](int64_t i) { return static_cast<int64_t>(first + i * stride); }),
                options);
}

// From both ends, as PyTorch: the last one is exact.
Tensor linspace(double start, double end, int64_t steps, const TensorOptions& options) {
  if (steps < 0) throw_invalid("[linspace] steps must be at least 0, got " + std::to_string(steps));
  const DType t = options.dtype_or(kDefaultDType);
  for (const double bound : {start, end}) require_fits(bound, t, "linspace");
  if (!is_floating(t)) start = std::trunc(start), end = std::trunc(end);
  const double step = steps > 1 ? (end - start) / static_cast<double>(steps - 1) : 0;
  return marked(filled({steps}, t, options.device_or(cpu),
                       [&](int64_t i) {
                         return i < steps / 2 || steps == 1 ? start + static_cast<double>(i) * step
                                                            : end - static_cast<double>(steps - 1 - i) * step;
                       }),
                options);
}

TensorOptions like(const Tensor& input, const TensorOptions& options) {
  return options.dtype(options.dtype_or(input.dtype())).device(options.device_or(input.device()));
}

Tensor empty_like(const Tensor& input, const TensorOptions& options) {
  return empty(input.shape(), like(input, options));
}
Tensor zeros_like(const Tensor& input, const TensorOptions& options) {
  return zeros(input.shape(), like(input, options));
}
Tensor ones_like(const Tensor& input, const TensorOptions& options) {
  return ones(input.shape(), like(input, options));
}
Tensor full_like(const Tensor& input, Scalar fill_value, const TensorOptions& options) {
  return full(input.shape(), fill_value, like(input, options));
}

}  // namespace troupe
