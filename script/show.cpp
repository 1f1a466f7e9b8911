#include "script/show.h"

#include <fmt/format.h>

#include <cmath>

namespace troupe::script {
namespace {

constexpr int64_t kEdge = 3;                     // elements at each end of a long row
constexpr int64_t kFew = 1000;                   // as many elements are shown whole
constexpr int64_t kMostRead = int64_t{1} << 24;  // range and mean of larger tensors are not looked at

std::string element_text(double value, DType dtype) {
  if (dtype == boolean) return value != 0 ? "true" : "false";
  if (dtype == int64 || dtype == int32 || dtype == uint8)
    return fmt::format("{}", static_cast<int64_t>(value));
  return fmt::format("{:.4g}", value);
}

std::string whole_text(const Tensor& t, int64_t index, const std::vector<double>& values,
                       const std::vector<int64_t>& integers) {
  if (t.dtype() == int64) return fmt::format("{}", integers[static_cast<size_t>(index)]);
  return element_text(values[static_cast<size_t>(index)], t.dtype());
}

struct Elements {
  const Tensor& tensor;
  std::vector<double> values;
  std::vector<int64_t> integers;
  bool all;  // nothing is left out

  std::string rows(int dim, int64_t offset, int64_t stride) const {
    const Shape& shape = tensor.shape();
    if (dim == shape.rank()) return whole_text(tensor, offset, values, integers);
    const int64_t size = shape[dim], inner = size ? stride / size : 0;
    const bool last = dim + 1 == shape.rank();
    const std::string between = last ? ", "
                                     : "," + std::string(static_cast<size_t>(shape.rank() - dim - 1), '\n') +
                                           std::string(static_cast<size_t>(dim) + 1, ' ');
    std::string out = "[";
    for (int64_t i = 0; i < size; ++i) {
      if (!all && size > 2 * kEdge && i == kEdge) {
        out += "..." + between;
        i = size - kEdge;
      }
      out += rows(dim + 1, offset + i * inner, inner);
      if (i + 1 < size) out += between;
    }
    return out + "]";
  }
};

}  // namespace

std::string shown(const Tensor& tensor) {
  if (!tensor.defined()) return "tensor, undefined";
  std::string out = "tensor " + tensor.str();
  if (tensor.requires_grad()) out += tensor.is_leaf() ? ", requires_grad" : ", has a history";
  const int64_t n = tensor.numel();
  if (n == 0) return out;
  if (n > kMostRead) return out + fmt::format(", {} elements", n);
  const Tensor plain = tensor.detach();
  Elements elements{plain, plain.to_vector<double>(), {}, n <= kFew};
  if (plain.dtype() == int64) elements.integers = plain.to_vector<int64_t>();
  if (plain.dtype() != boolean && n > 1) {
    double least = INFINITY, most = -INFINITY, sum = 0;
    int64_t nans = 0;
    for (const double v : elements.values) {
      if (std::isnan(v)) {
        ++nans;
        continue;
      }
      least = std::min(least, v);
      most = std::max(most, v);
      sum += v;
    }
    if (nans < n)
      out += fmt::format(", {} to {}, mean {:.4g}", element_text(least, plain.dtype()),
                         element_text(most, plain.dtype()), sum / static_cast<double>(n - nans));
    if (nans) out += fmt::format(", {} NaN", nans);
  }
  return out + "\n" + elements.rows(0, 0, n);
}

std::string harmless(std::string_view text, size_t most) {
  std::string out;
  size_t i = 0;
  while (i < text.size()) {
    if (out.size() >= most) return out + fmt::format("... and {} bytes more", text.size() - i);
    const auto byte = static_cast<unsigned char>(text[i]);
    // A UTF-8 sequence that is whole, and not of the C1 control characters, passes.
    const size_t length = byte < 0x80                   ? 1
                          : byte >= 0xc2 && byte < 0xe0 ? 2
                          : byte >= 0xe0 && byte < 0xf0 ? 3
                          : byte >= 0xf0 && byte < 0xf5 ? 4
                                                        : 0;
    bool good = length != 0 && i + length <= text.size();
    for (size_t k = 1; good && k < length; ++k)
      good = (static_cast<unsigned char>(text[i + k]) & 0xc0) == 0x80;
    if (length == 1) good = byte == '\n' || byte == '\t' || (byte >= 0x20 && byte != 0x7f);
    if (length == 2 && byte == 0xc2 && good) good = static_cast<unsigned char>(text[i + 1]) >= 0xa0;
    if (good) {
      out += text.substr(i, length);
      i += length;
    } else {
      out += fmt::format("\\x{:02x}", byte);
      ++i;
    }
  }
  return out;
}

}  // namespace troupe::script
