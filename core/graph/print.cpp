// Tensors as PyTorch prints them (torch/_tensor_str.py of PyTorch 2): "tensor([1., 2.], requires_grad=True)".
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ostream>

#include "core/graph/node.h"
#include "core/tensor/creation.h"
#include "core/tensor/elements.h"

namespace troupe {
namespace {

constexpr int64_t kThreshold = 1000;  // tensors of more elements are shortened
constexpr int64_t kEdge = 3;          // to so many at each end
constexpr int64_t kLineWidth = 80;
constexpr const char* kPrefix = "tensor(";

// The first and last elements of every long dimension, on the host.
Tensor edges(Tensor t) {
  for (int d = 0; d < t.dim(); ++d) {
    if (t.shape()[d] <= 2 * kEdge) continue;
    Shape half = t.shape(), both = t.shape();
    half[d] = kEdge, both[d] = 2 * kEdge;
    const Tensor out = empty(both, t.options());
    const int64_t last = t.shape()[d] - kEdge;
    copy_elements(out.alias(half, out.strides(), 0), t.alias(half, t.strides(), t.storage_offset()));
    copy_elements(out.alias(half, out.strides(), kEdge * out.strides()[d]),
                  t.alias(half, t.strides(), t.storage_offset() + last * t.strides()[d]));
    t = out;
  }
  return t.data_on(cpu).contiguous_data();
}

// How all numbers of one tensor are written: with as many places, and as wide.
class Format {
 public:
  explicit Format(const Tensor& t) : dtype_(t.dtype()) {
    if (is_floating(dtype_))
      decide(t.to_vector<double>());
    else
      for (const int64_t v : t.to_vector<int64_t>()) widen(plain(v));
  }

  std::string operator()(int64_t v) const { return padded(plain(v)); }
  std::string operator()(double v) const {
    if (std::isnan(v)) return padded("nan");
    if (std::isinf(v)) return padded(v < 0 ? "-inf" : "inf");
    return padded(scientific_ ? fmt::format("{:.4e}", v)
                  : whole_    ? fmt::format("{:.0f}.", v)
                              : fmt::format("{:.4f}", v));
  }
  int64_t width() const { return static_cast<int64_t>(width_); }

 private:
  std::string plain(int64_t v) const { return dtype_ == boolean ? v ? "True" : "False" : std::to_string(v); }
  std::string padded(const std::string& text) const {
    return std::string(width_ - std::min(width_, text.size()), ' ') + text;
  }
  void widen(const std::string& text) { width_ = std::max(width_, text.size()); }

  // By the finite numbers that are not 0.
  void decide(std::vector<double> values) {
    std::erase_if(values, [](double v) { return !std::isfinite(v) || v == 0; });
    if (values.empty()) return;
    double least = HUGE_VAL, most = 0;
    for (const double v : values) {
      whole_ &= v == std::ceil(v);
      least = std::min(least, std::fabs(v)), most = std::max(most, std::fabs(v));
    }
    scientific_ = most / least > 1000 || most > 1e8 || least < 1e-4;
    for (const double v : values) widen((*this)(v));
  }

  DType dtype_;
  bool whole_ = true, scientific_ = false;
  size_t width_ = 1;
};

// The elements of a row-major list, in brackets; `shape` is that of the tensor before it was shortened.
template <class T>
struct Elements {
  const Format& format;
  const std::vector<T>& values;
  const Shape& shape;
  bool shortened;
  size_t next = 0;

  bool cut(int dim) const { return shortened && shape[dim] > 2 * kEdge; }

  std::string line(int64_t indent) {
    const int dim = shape.rank() - 1;
    const int64_t per_line = std::max<int64_t>(1, (kLineWidth - indent) / (format.width() + 2));
    std::vector<std::string> parts;
    for (int64_t i = 0, n = cut(dim) ? 2 * kEdge : shape[dim]; i < n; ++i) {
      if (cut(dim) && i == kEdge) parts.push_back(" ...");
      parts.push_back(format(values[next++]));
    }
    std::string out = "[";
    for (size_t i = 0; i < parts.size(); ++i) {
      if (i) out += i % static_cast<size_t>(per_line) ? ", " : ",\n" + std::string(indent + 1, ' ');
      out += parts[i];
    }
    return out + "]";
  }

  std::string rows(int dim, int64_t indent) {
    if (shape.rank() == 0) return format(values[0]);
    if (dim + 1 == shape.rank()) return line(indent);
    const std::string between =
        "," + std::string(shape.rank() - dim - 1, '\n') + std::string(indent + 1, ' ');
    std::string out = "[";
    for (int64_t i = 0, n = cut(dim) ? 2 * kEdge : shape[dim]; i < n; ++i) {
      if (i) out += between;
      if (cut(dim) && i == kEdge) out += "..." + between;
      out += rows(dim + 1, indent + 1);
    }
    return out + "]";
  }
};

template <class T>
std::string elements_text(const Tensor& t) {
  const bool shortened = t.numel() > kThreshold;
  const Tensor shown = shortened ? edges(t.detach()) : t.data_on(cpu);
  const Format format(shown);
  const std::vector<T> values = shown.to_vector<T>();
  return Elements<T>{format, values, t.shape(), shortened}.rows(0, std::string(kPrefix).size());
}

// The name of a step as PyTorch gives it to the class of its node: "AddBackward" of "add" and "add_scalar".
std::string node_name(std::string name) {
  if (name.ends_with("_scalar")) name.resize(name.size() - std::string("_scalar").size());
  std::string out;
  bool start = true;
  for (const char c : name) {
    if (c == '_') {
      start = true;
    } else {
      out += start && c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
      start = false;
    }
  }
  return out + "Backward";
}

std::vector<std::string> suffixes(const Tensor& t) {
  std::vector<std::string> out;
  if (t.device() != cpu) out.push_back("device='" + t.device().str() + "'");
  const bool none = t.numel() == 0;
  if (none && t.dim() != 1) {
    std::string size = t.shape().str();
    size.front() = '(', size.back() = ')';
    out.push_back("size=" + size);
  }
  const DType dtype = t.dtype();
  if (dtype != kDefaultDType && (none || (dtype != int64 && dtype != boolean)))
    out.push_back("dtype=" + std::string(name(dtype)));
  if (const Edge made = t.grad_fn())
    out.push_back("grad_fn=<" + node_name(made.node->name()) + ">");
  else if (t.requires_grad())
    out.push_back("requires_grad=True");
  return out;
}

}  // namespace

std::string Tensor::str() const {
  if (!defined()) return "tensor(undefined)";
  std::string out = kPrefix;
  out += numel() == 0           ? "[]"
         : is_floating(dtype()) ? elements_text<double>(*this)
                                : elements_text<int64_t>(*this);
  const size_t indent = std::string(kPrefix).size(), line = out.rfind('\n');
  size_t length = line == std::string::npos ? out.size() + 2 : out.size() - line + 1;
  for (const std::string& suffix : suffixes(*this)) {
    if (length + suffix.size() + 2 > kLineWidth) {
      out += ",\n" + std::string(indent, ' ') + suffix;
      length = indent + suffix.size();
    } else {
      out += ", " + suffix;
      length += suffix.size() + 2;
    }
  }
  return out + ")";
}

std::ostream& operator<<(std::ostream& out, const Tensor& t) { return out << t.str(); }
std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << shape.str(); }
std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name(dtype); }
std::ostream& operator<<(std::ostream& out, Device device) { return out << device.str(); }

}  // namespace troupe
