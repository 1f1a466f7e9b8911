// The header is a Python literal; only the one form that it may have is parsed.
#include "data/formats/npy.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <optional>

#include "core/base/error.h"
#include "core/base/visible.h"
#include "core/tensor/creation.h"
#include "data/formats/file.h"
#include "data/formats/unchanged_file.h"

namespace troupe::datasets {
namespace {

static_assert(std::endian::native == std::endian::little, "NPY is written as it lies in memory");

constexpr size_t kMaxNumpyHeader = 65'535;
constexpr std::string_view kNumpy("\x93NUMPY", 6);

struct Header {
  std::string descr;
  bool fortran = false;
  std::vector<uint64_t> shape;
};

// {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class Parser {
 public:
  Parser(std::string_view text, std::string where) : text_(text), where_(std::move(where)) {}

  Header parse() {
    std::optional<std::string> descr;
    std::optional<bool> fortran;
    std::optional<std::vector<uint64_t>> shape;
    expect('{');
    while (!accept('}')) {
      const std::string key = quoted("a name");
      expect(':');
      if (key == "descr" && !descr) {
        if (peek() == '[')
          throw_error(ErrorKind::unimplemented,
                      where_ +
                          "has records of several fields, only arrays of numbers are read; save each field "
                          "by itself: np.save(\"a.npy\", array[\"a\"])");
        descr = quoted("an element type");
      } else if (key == "fortran_order" && !fortran) {
        fortran = truth();
      } else if (key == "shape" && !shape) {
        shape = sizes();
      } else {
        fail("the name " + in_quotes(key) + ", expected descr, fortran_order and shape once each");
      }
      if (accept(',')) continue;
      expect('}');
      break;
    }
    if (peek() != '\0' || at_ != text_.size()) fail("more after the dictionary");
    if (!descr || !fortran || !shape)
      throw_invalid(where_ + "the header lacks " + (!descr ? "descr" : !fortran ? "fortran_order" : "shape"));
    return {*descr, *fortran, *shape};
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw_invalid(where_ + "the header has " + what + " at its character " + std::to_string(at_));
  }
  char peek() {
    while (at_ < text_.size() && std::string_view(" \t\n\r\f").find(text_[at_]) != std::string_view::npos)
      ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }
  std::string found() {
    const char c = peek();
    if (at_ == text_.size()) return "its end";
    if (c < ' ' || c > '~') return "the byte " + std::to_string(static_cast<unsigned char>(c));
    return "'" + std::string(1, c) + "'";
  }
  void expect(char c) {
    if (!accept(c)) fail(found() + ", expected '" + std::string(1, c) + "'");
  }
  std::string quoted(const char* what) {
    if (peek() == 'u' && at_ + 1 < text_.size()) ++at_;  // as Python 2 writes texts
    const char quote = peek();
    if (quote != '\'' && quote != '"') fail(found() + ", expected " + what + " in quotes");
    const size_t from = ++at_, end = text_.find(quote, from);
    if (end == text_.npos) fail("a text without its closing quote");
    at_ = end + 1;
    return std::string(text_.substr(from, end - from));
  }
  bool truth() {
    peek();
    for (const std::string_view word : {"True", "False"})
      if (text_.substr(at_, word.size()) == word) {
        at_ += word.size();
        return word == "True";
      }
    fail(found() + ", expected True or False");
  }
  std::vector<uint64_t> sizes() {
    std::vector<uint64_t> out;
    expect('(');
    while (!accept(')')) {
      peek();
      uint64_t value = 0;
      const char* end = text_.data() + text_.size();
      const auto [stop, error] = std::from_chars(text_.data() + at_, end, value);
      if (error == std::errc::result_out_of_range || value > INT64_MAX) fail("a size too large");
      if (error != std::errc()) fail(found() + ", expected a size");
      at_ = static_cast<size_t>(stop - text_.data());
      if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // as Python 2 writes numbers
      out.push_back(value);
      if (out.size() > kMaxDims) fail("more than " + std::to_string(kMaxDims) + " dimensions");
      if (accept(',')) continue;
      if (out.size() == 1) fail(found() + ", expected ',' after the only size");  // (3) is no tuple
      expect(')');
      break;
    }
    return out;
  }

  std::string_view text_;
  std::string where_;
  size_t at_ = 0;
};

struct Element {
  char kind;  // f, i, u, b
  size_t size;
  bool swapped;
};

// A name as np.dtype() knows it: a byte order, which may be missing, with a kind and size or NumPy's letter;
// or a word.
struct Spelling {
  std::string_view code;     // f4
  std::string_view letters;  // with an order, too
  std::string_view words[3];
};
constexpr Spelling kSpellings[] = {
    {"b1", "?", {"bool", "bool_"}},
    {"i1", "b", {"int8", "byte"}},
    {"i2", "h", {"int16", "short"}},
    {"i4", "i", {"int32", "intc"}},
    {"i8", "lqp", {"int64", "int", "long"}},
    {"u1", "B", {"uint8", "ubyte"}},
    {"u2", "H", {"uint16", "ushort"}},
    {"u4", "I", {"uint32", "uintc"}},
    {"u8", "LQP", {"uint64", "uint", "ulong"}},
    {"f2", "e", {"float16", "half"}},
    {"f4", "f", {"float32", "single"}},
    {"f8", "d", {"float64", "double", "float"}},
};

Element element_of(const std::string& descr, const std::string& where) {
  const bool ordered = !descr.empty() && std::string_view("<>=|").find(descr[0]) != std::string_view::npos;
  const std::string_view type = std::string_view(descr).substr(ordered ? 1 : 0);
  for (const Spelling& s : kSpellings) {
    const size_t size = static_cast<size_t>(s.code[1] - '0');
    const bool letter = type.size() == 1 && s.letters.find(type[0]) != s.letters.npos;
    const bool word = !ordered && !type.empty() && std::ranges::find(s.words, type) != std::end(s.words);
    if (type == s.code || letter || word) return {s.code[0], size, descr[0] == '>' && size > 1};
  }
  if (type.find('O') != type.npos)
    throw_error(ErrorKind::unimplemented, where + "holds Python objects ('" + visible(descr.substr(0, 40)) +
                                              "'), which are programs and never read; save numbers");
  throw_error(ErrorKind::unimplemented, where + "has elements of type '" + visible(descr.substr(0, 40)) +
                                            "', only f2, f4, f8, i1 to i8, u1 to u8 and b1 are read; convert "
                                            "it in NumPy (astype) before it is saved");
}

// The numbers as they come, whatever their byte order.
template <class T>
T load(const std::byte* from, bool swapped) {
  std::byte bytes[sizeof(T)];
  std::memcpy(bytes, from, sizeof bytes);
  if (swapped) std::reverse(bytes, bytes + sizeof bytes);
  return std::bit_cast<T>(bytes);
}

template <class T, class To>
void convert(const std::byte* from, bool swapped, const Tensor& out, const std::string& where) {
  To* to = out.data<To>();
  for (int64_t i = 0, n = out.numel(); i < n; ++i, from += sizeof(T)) {
    const T value = load<T>(from, swapped);
    if constexpr (std::is_same_v<T, uint64_t>)
      if (value > INT64_MAX)
        throw_invalid(where + "element " + std::to_string(i) + " is " + std::to_string(value) +
                      ", too large for int64");
    to[i] = static_cast<To>(value);
  }
}

Tensor converted(const std::byte* from, const Element& e, const Shape& shape, const std::string& where) {
  const auto as = [&](DType dtype, auto fill) {
    const Tensor out = empty(shape, dtype);
    fill(from, e.swapped, out, where);
    return out;
  };
  switch (e.kind) {
    case 'f':
      if (e.size == 2) return as(float16, convert<Float16, Float16>);
      return e.size == 4 ? as(float32, convert<float, float>) : as(float64, convert<double, double>);
    case 'b':
      return as(boolean, convert<uint8_t, bool>);
    case 'i':
      if (e.size == 4) return as(int32, convert<int32_t, int32_t>);
      return as(int64, e.size == 1   ? convert<int8_t, int64_t>
                       : e.size == 2 ? convert<int16_t, int64_t>
                                     : convert<int64_t, int64_t>);
    default:
      if (e.size == 1) return as(uint8, convert<uint8_t, uint8_t>);
      return as(int64, e.size == 2   ? convert<uint16_t, int64_t>
                       : e.size == 4 ? convert<uint32_t, int64_t>
                                     : convert<uint64_t, int64_t>);
  }
}

std::optional<DType> same_type(const Element& e) {
  if (e.swapped) return {};
  if (e.kind == 'b') return boolean;
  if (e.kind == 'f') return e.size == 2 ? float16 : e.size == 4 ? float32 : float64;
  if (e.kind == 'i' && e.size == 8) return int64;
  if (e.kind == 'i' && e.size == 4) return int32;
  if (e.kind == 'u' && e.size == 1) return uint8;
  return {};
}

// The type that elements are read as.
DType type_of(Element e) {
  e.swapped = false;
  return same_type(e).value_or(int64);
}

// Length of the header, and where it begins.
std::pair<size_t, size_t> header_of(std::string_view text, const std::string& where) {
  if (text.size() < 8 || text.substr(0, 6) != kNumpy)
    throw_invalid(where + "does not begin with \\x93NUMPY: not an NPY file" +
                  (text.size() < 8 ? ", or cut short" : "") + instead(text));
  const int major = text[6], minor = text[7];
  if (major < 1 || major > 3 || minor != 0)
    throw_error(ErrorKind::unimplemented, where + "has version " + std::to_string(major) + "." +
                                              std::to_string(minor) + ", only 1.0, 2.0 and 3.0 are read");
  const size_t start = major == 1 ? 10 : 12;
  if (text.size() < start)
    throw_invalid(where + "ends at byte " + std::to_string(text.size()) + " in the header");
  uint32_t length = 0;
  std::memcpy(&length, text.data() + 8, start - 8);
  if (length > kMaxNumpyHeader)
    throw_invalid(where + "declares a header of " + std::to_string(length) + " bytes, expected at most " +
                  std::to_string(kMaxNumpyHeader));
  if (length > text.size() - start)
    throw_invalid(where + "declares a header of " + std::to_string(length) + " bytes, but has only " +
                  std::to_string(text.size() - start) + " after byte " + std::to_string(start));
  return {length, start};
}

// The header describes the elements so, which begin at byte `from`.
struct Layout {
  std::string descr;
  Element element;
  Shape shape;  // as stored: reversed if columns come first
  bool fortran;
  size_t from, bytes;
};

// The text has the header; `size` is that of the file.
Layout layout_of(std::string_view text, size_t size, const std::string& where) {
  const auto [length, start] = header_of(text, where);
  const Header header = Parser(text.substr(start, length), where).parse();
  const Element e = element_of(header.descr, where);
  Shape shape;
  uint64_t needed = e.size, steps = sizeof(int64_t);  // a size of 0 counts as 1: strides must fit too
  bool fits = true;
  for (const uint64_t d : header.shape) {
    fits &= !__builtin_mul_overflow(steps, std::max<uint64_t>(d, 1), &steps);
    needed *= d;
    shape.push_back(static_cast<int64_t>(d));
  }
  if (!fits || steps > INT64_MAX)
    throw_invalid(where + "has the shape " + shape.str() + ", more bytes than can be counted");
  const size_t from = start + length;
  if (size - from != needed)
    throw_invalid(where + "has " + std::to_string(size - from) + " bytes after its header, expected the " +
                  std::to_string(needed) + " of '" + header.descr + "' " + shape.str());
  if (header.fortran)
    std::reverse(shape.begin(), shape.end());  // columns first: its rows are our last dimension
  return {header.descr, e, shape, header.fortran, from, needed};
}

void check_bools(const Element& e, std::span<const std::byte> bytes, int64_t first,
                 const std::string& where) {
  if (e.kind != 'b') return;
  if (const int64_t bad = find_bad_bool(bytes); bad >= 0)
    throw_invalid(where + "is bool, but element " + std::to_string(first + bad) + " is " +
                  std::to_string(std::to_integer<int>(bytes[static_cast<size_t>(bad)])) +
                  ", expected 0 or 1");
}

Tensor copied(std::span<const std::byte> bytes, const Element& e, const Shape& shape,
              const std::string& where) {
  const auto dtype = same_type(e);
  if (!dtype) return converted(bytes.data(), e, shape, where);
  const Tensor out = empty(shape, *dtype);
  if (!bytes.empty()) std::memcpy(out.bytes(), bytes.data(), bytes.size());
  return out;
}

Tensor turned_back(const Tensor& read) {
  Shape turned = read.shape(), strides = read.strides();
  std::reverse(turned.begin(), turned.end());
  std::reverse(strides.begin(), strides.end());
  return read.alias(turned, strides, 0).contiguous_data();
}

}  // namespace

Tensor read_npy(const std::string& path) {
  const std::string where = "[npy] " + path + ": ";
  const auto file = MappedFile::open(path, "npy", "an NPY file");
  const Layout l = layout_of(file->text(), file->size(), where);
  const std::span bytes(file->data() + l.from, l.bytes);
  check_bools(l.element, bytes, 0, where);
  const auto dtype = same_type(l.element);
  const Tensor read =
      dtype ? tensor_in(file, l.from, l.shape, *dtype) : converted(bytes.data(), l.element, l.shape, where);
  return l.fortran ? turned_back(read) : read;
}

Tensor npy_of(std::span<const std::byte> bytes, const std::string& name) {
  const std::string where = "[npy] " + name + ": ";
  const Layout l =
      layout_of({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, bytes.size(), where);
  const auto elements = bytes.subspan(l.from, l.bytes);
  check_bools(l.element, elements, 0, where);
  const Tensor read = copied(elements, l.element, l.shape, where);
  return l.fortran ? turned_back(read) : read;
}

struct NpyArray::State {
  UnchangedFile file;
  std::string where;
  Layout layout;
  Shape row;
  size_t row_bytes;
};

NpyArray::NpyArray(const std::string& path) {
  const std::string where = "[npy] " + path + ": ";
  UnchangedFile file(path, "npy", "an NPY file");
  std::string head(std::min(file.size(), kMaxNumpyHeader + 12), '\0');
  file.read(0, std::as_writable_bytes(std::span(head)));
  const Layout l = layout_of(head, file.size(), where);
  if (l.shape.rank() == 0) throw_invalid(where + "has one element and no dimension, expected rows");
  if (l.fortran && l.shape.rank() > 1)
    throw_invalid(where +
                  "has its elements in Fortran's order, in which rows are not together; save it by "
                  "np.save(path, np.ascontiguousarray(array))");
  const Shape row(std::span(l.shape.begin() + 1, l.shape.end()));
  const size_t row_bytes = l.element.size * static_cast<size_t>(row.numel());
  state_ = std::make_shared<const State>(State{std::move(file), where, l, row, row_bytes});
}

int64_t NpyArray::rows() const { return state_->layout.shape[0]; }

std::string NpyArray::kind() const {
  return std::string(name(type_of(state_->layout.element))) + " " + state_->row.str();
}

Tensor NpyArray::row(int64_t number) const {
  const State& s = *state_;
  if (number < 0 || number >= rows())
    throw_invalid(s.where + "has " + std::to_string(rows()) + " rows, and row " + std::to_string(number) +
                  " was asked for");
  std::vector<std::byte> bytes(s.row_bytes);
  s.file.read(s.layout.from + static_cast<size_t>(number) * s.row_bytes, bytes);
  check_bools(s.layout.element, bytes, number * s.row.numel(), s.where);
  return copied(bytes, s.layout.element, s.row, s.where + "row " + std::to_string(number) + ": ");
}

void write_npy(const std::string& path, const Tensor& tensor) {
  const std::string where = "[npy] " + path + ": ";
  if (!tensor.defined()) throw_invalid(where + "the tensor is undefined");
  const std::string_view descr = [&] {
    switch (tensor.dtype()) {
      case DType::float32:
        return "<f4";
      case DType::float64:
        return "<f8";
      case DType::float16:
        return "<f2";
      case DType::int64:
        return "<i8";
      case DType::int32:
        return "<i4";
      case DType::uint8:
        return "|u1";
      case DType::boolean:
        return "|b1";
      default:
        throw_error(ErrorKind::unimplemented, where + "no NPY type for " + std::string(name(tensor.dtype())));
    }
  }();
  std::string header = "{'descr': '" + std::string(descr) + "', 'fortran_order': False, 'shape': (";
  for (const int64_t d : tensor.shape()) header += std::to_string(d) + (tensor.dim() == 1 ? "," : ", ");
  if (tensor.dim() > 1) header.resize(header.size() - 2);
  header += "), }";
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  const uint16_t length = static_cast<uint16_t>(header.size());
  AtomicFile file(path, "npy");
  file.write(kNumpy.data(), kNumpy.size());
  file.write("\1\0", 2);
  file.write(&length, sizeof length);
  file.write(header.data(), header.size());
  const Tensor rows = tensor.data_on(cpu).contiguous_data();
  file.write(rows.bytes(), rows.nbytes());
  file.commit();
}

}  // namespace troupe::datasets
