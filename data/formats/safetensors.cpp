// Views of a mapped file, and the writer.
#include "data/formats/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/tensor/creation.h"
#include "data/formats/safetensors_header.h"
#include "data/formats/safetensors_writer.h"

namespace troupe::datasets {
namespace {

static_assert(std::endian::native == std::endian::little, "elements of these files are little-endian");

constexpr uint64_t kMaxHeader = 100'000'000;  // the format's limit
constexpr size_t kHead = 16;                  // bytes by which other formats are known
constexpr size_t kAlignment = 64;
constexpr size_t kPart = size_t{1} << 20;  // is still in the cache when it is written after a checksum

struct Mapped {
  std::string_view name;
  DType dtype;
};
constexpr Mapped kMapped[] = {{"F32", float32}, {"F64", float64},  {"I64", int64},     {"I32", int32},
                              {"U8", uint8},    {"BOOL", boolean}, {"BF16", bfloat16}, {"F16", float16}};

std::optional<DType> dtype_named(std::string_view name) {
  for (const Mapped& m : kMapped)
    if (m.name == name) return m.dtype;
  return {};
}
std::string_view name_of(DType dtype) {
  for (const Mapped& m : kMapped)
    if (m.dtype == dtype) return m.name;
  throw_error(ErrorKind::unimplemented,
              "[safetensors] no name for " + std::string(name(dtype)) + " in these files");
}

template <class T>
Tensor upcast(const std::byte* from, const Shape& shape) {
  const Tensor out = empty(shape, int64);
  int64_t* to = out.data<int64_t>();
  for (int64_t i = 0, n = shape.numel(); i < n; ++i, from += sizeof(T)) {
    T value;
    std::memcpy(&value, from, sizeof value);
    to[i] = static_cast<int64_t>(value);
  }
  return out;
}

}  // namespace

struct Safetensors::Views {
  internal::Mutex mutex;
  std::map<std::string, Tensor> made;
};

Safetensors::Safetensors(const std::string& path)
    : path_(path),
      file_(MappedFile::open(path, "safetensors", "a safetensors file")),
      views_(std::make_shared<Views>()) {
  auto header = detail::read_safetensors_header(
      file_->size(), [&](size_t count) { return file_->text().substr(0, count); },
      "[safetensors] " + path_ + ": ");
  entries_ = std::move(header.entries);
  by_name_ = std::move(header.by_name);
  metadata_ = std::move(header.metadata);
}

detail::SafetensorsHeader detail::read_safetensors_header(
    size_t size, const std::function<std::string_view(size_t)>& first, const std::string& where) {
  const std::string_view head = first(std::min(size, kHead));
  if (size < 9 || head[8] != '{')
    if (const std::string other = instead(head); !other.empty())
      throw_invalid(where + "no safetensors file" + other);
  if (size < 8)
    throw_invalid(where + "has " + std::to_string(size) +
                  " bytes, expected 8 of header length and a header: not a safetensors file, or cut short");
  uint64_t length;
  std::memcpy(&length, head.data(), 8);
  if (length > kMaxHeader)
    throw_invalid(where + "declares a header of " + std::to_string(length) + " bytes, expected at most " +
                  std::to_string(kMaxHeader) + ": not a safetensors file?");
  if (length > size - 8)
    throw_invalid(where + "declares a header of " + std::to_string(length) + " bytes, but has only " +
                  std::to_string(size - 8) + " after byte 8: cut short, or not a safetensors file");
  const uint64_t start = 8 + length;
  auto header = parse_safetensors_header(first(start).substr(8), size - start, where);
  for (SafetensorsEntry& e : header.entries) e.begin += start, e.end += start;
  return header;
}

const SafetensorsEntry* Safetensors::find(const std::string& name) const {
  const auto at = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                   [&](uint32_t i, const std::string& n) { return entries_[i].name < n; });
  return at != by_name_.end() && entries_[*at].name == name ? &entries_[*at] : nullptr;
}

Tensor Safetensors::tensor(const std::string& name) const {
  const SafetensorsEntry* const found = find(name);
  if (!found) {
    std::vector<std::string> names;
    for (const uint32_t i : by_name_) names.push_back(entries_[i].name);
    const std::string near = nearest(name, names);
    throw_invalid("[safetensors] " + path_ + ": no tensor \"" + name + "\" among its " +
                  std::to_string(names.size()) + (near.empty() ? "" : "; did you mean \"" + near + "\"?"));
  }
  const SafetensorsEntry& e = *found;
  const std::byte* from = file_->data() + e.begin;
  if (const auto dtype = dtype_named(e.dtype)) {
    if (*dtype == boolean)
      if (const int64_t bad = find_bad_bool({from, e.end - e.begin}); bad >= 0)
        throw_invalid("[safetensors] " + path_ + ": tensor \"" + name + "\" is BOOL, but its element " +
                      std::to_string(bad) + " is " + std::to_string(std::to_integer<int>(from[bad])) +
                      ", expected 0 or 1");
    // A mapping begins on a page. What is not aligned is a copy: each caller gets one of its own.
    if (e.begin % item_size(*dtype) != 0) return tensor_in(file_, e.begin, e.shape, *dtype);
    std::lock_guard lock(views_->mutex);
    Tensor& view = views_->made[name];
    if (!view.defined()) view = tensor_in(file_, e.begin, e.shape, *dtype);
    return view;
  }
  return detail::elements_of({from, e.end - e.begin}, e.dtype, e.shape,
                             "[safetensors] " + path_ + ": tensor \"" + name + "\"");
}

Tensor detail::elements_of(std::span<const std::byte> bytes, std::string_view dtype, const Shape& shape,
                           const std::string& what) {
  const std::byte* from = bytes.data();
  if (const auto same = dtype_named(dtype)) {
    if (*same == boolean)
      if (const int64_t bad = find_bad_bool(bytes); bad >= 0)
        throw_invalid(what + " is BOOL, but its element " + std::to_string(bad) + " is " +
                      std::to_string(std::to_integer<int>(from[bad])) + ", expected 0 or 1");
    const Tensor out = empty(shape, *same);
    if (!bytes.empty()) std::memcpy(out.bytes(), from, bytes.size());
    return out;
  }
  if (dtype == "I8") return upcast<int8_t>(from, shape);
  if (dtype == "U16") return upcast<uint16_t>(from, shape);
  if (dtype == "I16") return upcast<int16_t>(from, shape);
  if (dtype == "U32") return upcast<uint32_t>(from, shape);
  throw_error(ErrorKind::unimplemented,
              what + " has the dtype " + std::string(dtype) + ", which is not read; store it as F32 or I64");
}

std::map<std::string, Tensor> Safetensors::tensors() const {
  std::map<std::string, Tensor> all;
  for (const SafetensorsEntry& e : entries_) all.emplace(e.name, tensor(e.name));
  return all;
}

void write_safetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  detail::write_safetensors(path, tensors, metadata, [](std::string_view, const void*, size_t) {});
}

void detail::write_safetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                               const std::map<std::string, std::string>& metadata,
                               const WrittenBytes& written, AtomicFile::Through through) {
  std::map<std::string, LaterTensor> all;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined()) throw_invalid("[safetensors] " + path + ": tensor \"" + name + "\" is undefined");
    all.emplace(name, LaterTensor{tensor.dtype(), tensor.shape(), [t = tensor] { return t; }});
  }
  write_safetensors(path, all, metadata, written, through);
}

void detail::write_safetensors(const std::string& path, const std::map<std::string, LaterTensor>& tensors,
                               const std::map<std::string, std::string>& metadata,
                               const WrittenBytes& written, AtomicFile::Through through) {
  const std::string where = "[safetensors] " + path + ": ";
  std::vector<const std::pair<const std::string, LaterTensor>*> order;
  for (const auto& item : tensors) {
    if (item.first == "__metadata__")
      throw_invalid(where + "a tensor is named \"__metadata__\", which the format keeps for texts");
    order.push_back(&item);
  }
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return item_size(a->second.dtype) > item_size(b->second.dtype);
  });

  std::string text = "{";
  uint64_t at = 0;
  try {
    const auto quoted = [](const std::string& name) { return nlohmann::json(name).dump(); };
    if (!metadata.empty()) text += "\"__metadata__\":" + nlohmann::json(metadata).dump() + ",";
    for (const auto* item : order) {
      const LaterTensor& t = item->second;
      const std::vector<int64_t> shape(t.shape.begin(), t.shape.end());
      const uint64_t end = at + static_cast<uint64_t>(t.shape.numel()) * item_size(t.dtype);
      text += quoted(item->first) + ":{\"dtype\":\"" + std::string(name_of(t.dtype)) +
              "\",\"shape\":" + nlohmann::json(shape).dump() + ",\"data_offsets\":[" + std::to_string(at) +
              "," + std::to_string(end) + "]},";
      at = end;
    }
  } catch (const nlohmann::json::type_error&) {
    throw_invalid(where + "a name or a text of the metadata is not UTF-8");
  }
  if (text.back() == ',') text.pop_back();
  text += '}';
  text.append((kAlignment - (8 + text.size()) % kAlignment) % kAlignment, ' ');
  if (text.size() > kMaxHeader)
    throw_invalid(where + "needs a header of " + std::to_string(text.size()) + " bytes, the format allows " +
                  std::to_string(kMaxHeader));
  const uint64_t length = text.size();
  AtomicFile file(path, "safetensors", through);
  const auto write = [&](std::string_view tensor, const void* bytes, size_t count) {
    written(tensor, bytes, count);
    file.write(bytes, count);
  };
  write({}, &length, sizeof length);
  write({}, text.data(), text.size());
  for (const auto* item : order) {
    const Tensor rows = item->second.elements().data_on(cpu).contiguous_data();
    if (rows.dtype() != item->second.dtype || rows.shape() != item->second.shape)
      throw_invalid(where + "tensor \"" + item->first + "\" became " + rows.summary() +
                    " while it was written");
    for (size_t done = 0;;) {
      const size_t part = std::min(rows.nbytes() - done, kPart);
      write(item->first, rows.bytes() + done, part);
      if ((done += part) == rows.nbytes()) break;
    }
  }
  file.commit();
}

}  // namespace troupe::datasets
