#include "core/codec/keep.h"

#include <algorithm>
#include <cstring>

#include "core/graph/copy_on_write.h"
#include "core/graph/inplace_write.h"
#include "core/graph/node.h"
#include "core/tensor/creation.h"
#include "core/tensor/elements.h"

namespace troupe {
namespace internal {
namespace {

constexpr int kDeepest = 64;

// What a byte says that comes next. Numbers of formats that are written: they stay.
enum class PackedKind : uint8_t { nothing, boolean, whole, number, text, bytes, tensor, list, map };

class Packer {
 public:
  Packer(StateDict& to, const std::string& name) : to_(to), name_(name) {}
  void add(const Value& v, int depth = 0) {
    if (depth > kDeepest) refuse("lies deeper than " + std::to_string(kDeepest) + " lists");
    if (v.is_null()) {
      kind(PackedKind::nothing);
    } else if (const auto* b = v.get_if<bool>()) {
      kind(PackedKind::boolean), number(static_cast<uint8_t>(*b));
    } else if (const auto* i = v.get_if<int64_t>()) {
      kind(PackedKind::whole), number(*i);
    } else if (const auto* d = v.get_if<double>()) {
      kind(PackedKind::number), number(*d);
    } else if (const auto* s = v.get_if<std::string>()) {
      kind(PackedKind::text), run(s->data(), s->size());
    } else if (const auto* bytes = v.get_if<Bytes>()) {
      kind(PackedKind::bytes), run(bytes->data(), bytes->size());
    } else if (const auto* t = v.get_if<Tensor>()) {
      kind(PackedKind::tensor), number(tensors_);
      to_[name_ + "." + std::to_string(tensors_++)] = internal::lazy_copy(t->detach());
    } else if (const auto* list = v.get_if<ValueList>()) {
      kind(PackedKind::list), number(static_cast<uint64_t>(list->size()));
      for (const Value& x : *list) add(x, depth + 1);
    } else if (const auto* map = v.get_if<ValueMap>()) {
      kind(PackedKind::map), number(static_cast<uint64_t>(map->size()));
      for (const auto& [key, x] : *map) run(key.data(), key.size()), add(x, depth + 1);
    } else {
      refuse("holds a " + v.describe() + ", which is made anew and not saved");
    }
  }
  void finish() { to_[name_] = tensor(bytes_, uint8); }

 private:
  [[noreturn]] void refuse(const std::string& why) { throw_invalid("[keep] \"" + name_ + "\" " + why); }
  void kind(PackedKind k) { number(static_cast<uint8_t>(k)); }
  template <class T>
  void number(T x) {
    append(&x, sizeof x);
  }
  void run(const void* from, size_t n) {
    number(static_cast<uint64_t>(n));
    append(from, n);
  }
  void append(const void* from, size_t n) {
    const auto* first = static_cast<const uint8_t*>(from);
    bytes_.insert(bytes_.end(), first, first + n);
  }
  StateDict& to_;
  const std::string& name_;
  std::vector<uint8_t> bytes_;
  uint64_t tensors_ = 0;
};

class Unpacker {
 public:
  Unpacker(const StateDict& from, const std::string& name) : from_(from), name_(name) {
    const Tensor& t = find(name);
    if (t.dtype() != uint8 || t.dim() != 1)
      throw_invalid("[keep] \"" + name + "\" is " + t.summary() +
                    ", expected uint8 [n]: another thing was kept");
    bytes_ = t.data_on(cpu).to_vector<uint8_t>();
    at_ = reinterpret_cast<const char*>(bytes_.data());
    end_ = at_ + bytes_.size();
  }
  Value value(int depth = 0) {
    if (depth > kDeepest) refuse();
    switch (static_cast<PackedKind>(number<uint8_t>())) {
      case PackedKind::nothing:
        return {};
      case PackedKind::boolean:
        return number<uint8_t>() != 0;
      case PackedKind::whole:
        return number<int64_t>();
      case PackedKind::number:
        return number<double>();
      case PackedKind::text:
        return text();
      case PackedKind::bytes: {
        const size_t n = size();
        const auto* first = reinterpret_cast<const std::byte*>(take(n));
        return Bytes(first, first + n);
      }
      case PackedKind::tensor:
        return find(name_ + "." + std::to_string(number<uint64_t>())).clone_data();
      case PackedKind::list: {
        ValueList out;
        for (size_t n = size(); n > 0; --n) out.push_back(value(depth + 1));
        return out;
      }
      case PackedKind::map: {
        ValueMap out;
        for (size_t n = size(); n > 0; --n) {
          std::string key = text();
          out[std::move(key)] = value(depth + 1);
        }
        return out;
      }
    }
    refuse();
  }
  void finish() {
    if (at_ != end_) refuse();
  }

 private:
  [[noreturn]] void refuse() { throw_invalid("[keep] \"" + name_ + "\" is not as it was written"); }
  const Tensor& find(const std::string& name) {
    const auto at = from_.find(name);
    if (at == from_.end() || !at->second.defined())
      throw_invalid("[keep] the checkpoint has no \"" + name + "\": it is of another program");
    return at->second;
  }
  const char* take(size_t n) {
    if (static_cast<size_t>(end_ - at_) < n) refuse();
    return std::exchange(at_, at_ + n);
  }
  template <class T>
  T number() {
    T x;
    std::memcpy(&x, take(sizeof x), sizeof x);
    return x;
  }
  // Of what takes a byte each at least.
  size_t size() {
    const auto n = number<uint64_t>();
    if (n > static_cast<uint64_t>(end_ - at_)) refuse();
    return n;
  }
  std::string text() {
    const size_t n = size();
    return std::string(take(n), n);
  }
  const StateDict& from_;
  const std::string& name_;
  std::vector<uint8_t> bytes_;
  const char *at_ = nullptr, *end_ = nullptr;
};

}  // namespace

void pack(StateDict& to, const std::string& name, const Value& value) {
  Packer packer(to, name);
  packer.add(value);
  packer.finish();
}

Value unpack(const StateDict& from, const std::string& name) {
  Unpacker unpacker(from, name);
  Value out = unpacker.value();
  unpacker.finish();
  return out;
}

void restore(Tensor& variable, Tensor kept) {
  if (!variable.defined() || !kept.defined()) {
    variable = std::move(kept);
    return;
  }
  if (!variable.requires_grad() || !variable.is_leaf()) {
    variable = kept.data_on(variable.device());
    return;
  }
  constexpr const char* kWriter = "keep";
  if (kept.shape() != variable.shape() || kept.dtype() != variable.dtype())
    throw_invalid("[keep] the checkpoint has a parameter " + kept.summary() + ", here it is " +
                  variable.summary());
  begin_write(variable, kWriter);
  copy_elements(variable, kept.data_on(variable.device()));
  variable.bump_version(kWriter);
}

}  // namespace internal

Keep::Keep(Empty) {}
Keep::~Keep() = default;

void Keep::cover(const void* variable, size_t size) { covers_.emplace_back(variable, size); }

void Keep::add(const Kept& kept) {
  std::string name = kept.name;
  if (name.empty() || name.find('.') != std::string::npos)
    throw_invalid("[keep] a name \"" + name + "\"; expected one without dots");
  for (const Named& other : kept_)
    if (other.name == name) throw_invalid("[keep] two variables are called \"" + name + "\"");
  cover(kept.variable, kept.size);
  kept_.push_back({std::move(name), kept});
}

StateDict Keep::state() const {
  StateDict out;
  for (const Named& k : kept_) internal::pack(out, k.name, k.how.get(k.how.variable));
  return out;
}

void Keep::load_state(const StateDict& state) {
  std::vector<Value> values;  // before anything changes
  for (const Named& k : kept_) values.push_back(internal::unpack(state, k.name));
  for (const auto& [name, t] : state)
    if (std::none_of(kept_.begin(), kept_.end(),
                     [name = name.substr(0, name.find('.'))](const Named& k) { return k.name == name; }))
      throw_invalid("[keep] the checkpoint has \"" + name + "\", which is not kept here");
  for (size_t i = 0; i < kept_.size(); ++i) kept_[i].how.set(kept_[i].how.variable, std::move(values[i]));
}

}  // namespace troupe
