#include "script/show.h"

#include <fmt/format.h>

#include <cmath>

namespace troupe::script {
namespace {

constexpr int64_t kWhole = 1000;                 // as many elements are printed whole
constexpr int64_t kMostRead = int64_t{1} << 24;  // range and mean of larger tensors are not looked at

// What elements that are not shown are like: from the least to the largest, their mean, and how many NaN.
std::string spread(const Tensor& tensor) {
  double least = INFINITY, most = -INFINITY, sum = 0;
  int64_t nans = 0;
  for (const double v : tensor.detach().to_vector<double>()) {
    if (std::isnan(v)) {
      ++nans;
      continue;
    }
    least = std::min(least, v);
    most = std::max(most, v);
    sum += v;
  }
  const int64_t n = tensor.numel();
  std::string out;
  if (nans < n)
    out += fmt::format(", {:.4g} to {:.4g}, mean {:.4g}", least, most, sum / static_cast<double>(n - nans));
  return nans ? out + fmt::format(", {} NaN", nans) : out;
}

}  // namespace

std::string shown(const Tensor& tensor) {
  std::string out = tensor.str();
  if (!tensor.defined() || tensor.numel() <= kWhole || tensor.numel() > kMostRead) return out;
  return tensor.summary() + spread(tensor) + "\n" + out;
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
