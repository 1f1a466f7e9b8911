// A SAX handler that knows the one form that a header may have: nlohmann's tree would let names repeat.
#include "data/formats/safetensors_header.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <numeric>
#include <tuple>
#include <utility>

#include "core/base/error.h"
#include "core/base/visible.h"

namespace troupe::datasets::detail {
namespace {

using Json = nlohmann::json;

struct Known {
  std::string_view name;
  unsigned bits;
};
constexpr std::array kKnown = {
    Known{"BOOL", 8},    Known{"F4", 4},   Known{"F6_E2M3", 6},     Known{"F6_E3M2", 6},
    Known{"U8", 8},      Known{"I8", 8},   Known{"F8_E5M2", 8},     Known{"F8_E4M3", 8},
    Known{"F8_E8M0", 8}, Known{"I16", 16}, Known{"F8_E4M3FNUZ", 8}, Known{"F8_E5M2FNUZ", 8},
    Known{"U16", 16},    Known{"F16", 16}, Known{"BF16", 16},       Known{"I32", 32},
    Known{"U32", 32},    Known{"F32", 32}, Known{"C64", 64},        Known{"F64", 64},
    Known{"I64", 64},    Known{"U64", 64},
};

// Null for a name that the format does not have.
const Known* known_dtype(std::string_view name) {
  const auto at = std::find_if(kKnown.begin(), kKnown.end(), [&](const Known& k) { return k.name == name; });
  return at == kKnown.end() ? nullptr : &*at;
}

// {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ..., "__metadata__": {"key": "text"}}
class Handler {
 public:
  Handler(SafetensorsHeader& header, size_t most, const std::string& where)
      : header_(header), most_(most), where_(where) {}

  bool start_object(size_t) {
    if (at_ == At::start) return go(At::top);
    if (at_ == At::metadata_value) return go(At::metadata);
    if (at_ == At::tensor_value) {
      entry_ = {};
      entry_.name = name_;
      seen_ = 0;
      return go(At::tensor);
    }
    return unexpected("an object");
  }
  bool end_object() {
    if (at_ == At::top) return go(At::end);
    if (at_ == At::tensor) {
      for (size_t f = 0; f < kFields.size(); ++f)
        if (!(seen_ & 1u << f)) fail(what() + " has no \"" + std::string(kFields[f]) + "\"");
      if (header_.entries.empty()) header_.entries.reserve(most_);  // growing would take twice as much
      header_.entries.push_back(std::move(entry_));
    }
    return go(At::top);
  }
  bool key(std::string& key) {
    if (at_ == At::top) {
      name_ = key;
      if (key != kMetadata) return go(At::tensor_value);
      if (std::exchange(has_metadata_, true)) fail("the name " + in_quotes(key, 80) + " appears twice");
      return go(At::metadata_value);
    }
    if (at_ == At::metadata) {
      if (!header_.metadata.emplace(key, "").second)
        fail("__metadata__ has the name " + in_quotes(key, 80) + " twice");
      name_ = key;
      return go(At::metadata_text);
    }
    const auto field = std::find(kFields.begin(), kFields.end(), key);
    if (field == kFields.end())
      fail(what() + " has " + in_quotes(key, 80) + ", expected dtype, shape and data_offsets only");
    const unsigned bit = 1u << (field - kFields.begin());
    if (seen_ & bit) fail(what() + " has \"" + key + "\" twice");
    seen_ |= bit;
    return go(key == "dtype" ? At::dtype : key == "shape" ? At::shape_value : At::offsets_value);
  }
  bool start_array(size_t) {
    numbers_.clear();
    if (at_ == At::shape_value) return go(At::shape);
    if (at_ == At::offsets_value) return go(At::offsets);
    return unexpected("a list");
  }
  bool end_array() {
    if (at_ == At::shape) {
      if (numbers_.size() > kMaxDims)
        fail(what() + " has " + std::to_string(numbers_.size()) + " dimensions, expected at most " +
             std::to_string(kMaxDims));
      for (uint64_t n : numbers_) entry_.shape.push_back(static_cast<int64_t>(n));
    } else {
      if (numbers_.size() != 2)
        fail(what() + " has " + std::to_string(numbers_.size()) + " data_offsets, expected 2");
      entry_.begin = numbers_[0], entry_.end = numbers_[1];
    }
    return go(At::tensor);
  }
  bool number_unsigned(uint64_t value) {
    if (at_ != At::shape && at_ != At::offsets) return unexpected("the number " + std::to_string(value));
    if (value > INT64_MAX) fail(what() + " has the size or offset " + std::to_string(value) + ", too large");
    if (numbers_.size() > kMaxDims) fail(what() + " has a list of more than " + std::to_string(kMaxDims));
    numbers_.push_back(value);
    return true;
  }
  bool string(std::string& value) {
    if (at_ == At::metadata_text) {
      header_.metadata[name_] = std::move(value);
      return go(At::metadata);
    }
    if (at_ != At::dtype) return unexpected("a text");
    const Known* const known = known_dtype(value);
    if (!known)
      fail(what() + " has the unknown dtype " + in_quotes(value, 80) +
           ", expected one as F32, F64, I64 or BOOL");
    entry_.dtype = known->name;
    return go(At::tensor);
  }
  bool number_integer(int64_t value) { return unexpected("the number " + std::to_string(value)); }
  bool number_float(double, const std::string& text) {
    return unexpected("the number " + text.substr(0, 40));
  }
  bool boolean(bool value) { return unexpected(value ? "true" : "false"); }
  bool null() { return unexpected("null"); }
  bool binary(Json::binary_t&) { return unexpected("bytes"); }
  bool parse_error(size_t at, const std::string&, const Json::exception& e) {
    const std::string text = e.what();  // "[json.exception.parse_error.101] parse error at ...: ..."
    const size_t colon = text.find(": ");
    fail("the header is no JSON at byte " + std::to_string(8 + at - (at > 0)) + ": " +
         text.substr(colon == std::string::npos ? 0 : colon + 2, 160));
  }

 private:
  enum class At {
    start,
    top,
    metadata_value,
    metadata,
    metadata_text,
    tensor_value,
    tensor,
    dtype,
    shape_value,
    shape,
    offsets_value,
    offsets,
    end,
  };

  bool go(At at) {
    at_ = at;
    return true;
  }
  [[noreturn]] void fail(const std::string& text) const { throw_invalid(where_ + text); }
  std::string what() const { return "tensor " + in_quotes(name_, 80); }

  [[noreturn]] bool unexpected(const std::string& got) const {
    switch (at_) {
      case At::metadata_value:
        fail("__metadata__ is " + got + ", expected an object of texts");
      case At::metadata_text:
        fail("__metadata__ " + in_quotes(name_, 80) + " is " + got + ", expected a text");
      case At::tensor_value:
        fail(what() + " is " + got + ", expected an object");
      case At::dtype:
        fail(what() + ": dtype is " + got + ", expected a text");
      case At::shape_value:
      case At::offsets_value:
        fail(what() + ": got " + got + ", expected a list of whole numbers for shape and data_offsets");
      case At::shape:
        fail(what() + ": shape holds " + got + ", expected whole numbers from 0");
      case At::offsets:
        fail(what() + ": data_offsets holds " + got + ", expected whole numbers from 0");
      default:
        fail("the header is " + got + ", expected an object");
    }
  }

  static constexpr const char* kMetadata = "__metadata__";
  static constexpr std::array<std::string_view, 3> kFields = {"dtype", "shape", "data_offsets"};

  SafetensorsHeader& header_;
  const size_t most_;  // tensors that there can be
  const std::string& where_;
  At at_ = At::start;
  std::string name_;
  SafetensorsEntry entry_;
  unsigned seen_ = 0;  // of kFields
  bool has_metadata_ = false;
  std::vector<uint64_t> numbers_;
};

// Bytes that dtype and shape ask for.
uint64_t size_of(const SafetensorsEntry& e, const std::string& where) {
  uint64_t bits = known_dtype(e.dtype)->bits, steps = bits;  // a size of 0 counts as 1: strides must fit too
  bool fits = true;
  for (int64_t d : e.shape) {
    fits &= !__builtin_mul_overflow(steps, static_cast<uint64_t>(std::max<int64_t>(d, 1)), &steps);
    bits *= static_cast<uint64_t>(d);
  }
  if (!fits || steps > INT64_MAX)
    throw_invalid(where + "tensor \"" + e.name + "\" has the shape " + e.shape.str() +
                  ", more bytes than can be counted");
  if (bits % 8 != 0)
    throw_invalid(where + "tensor \"" + e.name + "\", " + std::string(e.dtype) + " " + e.shape.str() +
                  ", does not end on a whole byte");
  return bits / 8;
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t data_bytes,
                                           const std::string& where) {
  if (json.empty() || json.front() != '{')
    throw_invalid(where + "the header does not begin with '{' at byte 8");
  if (json[json.find_last_not_of(' ')] != '}')
    throw_invalid(where + "the header does not end with '}' and spaces");
  if (const size_t zero = json.find('\0'); zero != json.npos)  // the parser would stop there, content
    throw_invalid(where + "the header is no JSON: byte " + std::to_string(8 + zero) + " is 0");
  SafetensorsHeader header;
  // A tensor has a brace of its own, and no fewer bytes than the shortest one.
  constexpr size_t kShortest = sizeof(R"("":{"dtype":"U8","shape":[],"data_offsets":[0,1]})");
  const auto braces = static_cast<size_t>(std::count(json.begin(), json.end(), '{'));
  Handler handler(header, std::min(braces, json.size() / kShortest + 1), where);
  Json::sax_parse(json.begin(), json.end(), &handler, Json::input_format_t::json, true);

  auto& entries = header.entries;
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  auto& by_name = header.by_name;
  by_name.resize(entries.size());
  std::iota(by_name.begin(), by_name.end(), 0);
  const auto name_of = [&](uint32_t i) -> const std::string& { return entries[i].name; };
  std::ranges::sort(by_name, {}, name_of);
  if (const auto twice = std::ranges::adjacent_find(by_name, {}, name_of); twice != by_name.end())
    throw_invalid(where + "the name " + in_quotes(name_of(*twice), 80) + " appears twice");
  uint64_t covered = 0;
  for (const SafetensorsEntry& e : entries) {
    const std::string what = "tensor \"" + e.name + "\"";
    const std::string offsets = "[" + std::to_string(e.begin) + ", " + std::to_string(e.end) + "]";
    if (e.end < e.begin)
      throw_invalid(where + what + " has data_offsets " + offsets + ", which run backwards");
    if (e.end > data_bytes)
      throw_invalid(where + what + " has data_offsets " + offsets + ", but the file holds only " +
                    std::to_string(data_bytes) + " bytes after its header");
    if (e.begin != covered)
      throw_invalid(where + what + " has data_offsets " + offsets +
                    (e.begin < covered ? ", which overlap" : ", which leave a hole after") +
                    " the bytes before " + std::to_string(covered));
    if (const uint64_t size = size_of(e, where); e.end - e.begin != size)
      throw_invalid(where + what + " has data_offsets " + offsets + ", but " + std::string(e.dtype) + " " +
                    e.shape.str() + " takes " + std::to_string(size) + " bytes");
    covered = e.end;
  }
  if (covered != data_bytes)
    throw_invalid(where + "the file goes on for " + std::to_string(data_bytes - covered) +
                  " bytes after its last tensor, expected none");
  return header;
}

}  // namespace troupe::datasets::detail
