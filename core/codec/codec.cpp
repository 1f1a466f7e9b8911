#include "core/codec/codec.h"

#include <iterator>

namespace troupe {

template std::shared_ptr<FutureCore> make_future_state<Value>();
template std::shared_ptr<FutureCore> make_future_state<Tensor>();
namespace internal {

ValueList list_of(Value* values, size_t count) {
  return {std::make_move_iterator(values), std::make_move_iterator(values + count)};
}

std::string name_of(std::string what, NameOf of) { return std::move(what) + of(); }
std::string name_of_int(size_t bytes) { return "int" + std::to_string(bytes * 8); }

void mismatch(NameOf expected, const Value& got) { mismatch(expected(), got); }
void mismatch(const std::string& expected, const Value& got) {
  throw_invalid("expected " + expected + ", got " + got.describe());
}

void out_of_range(NameOf expected, int64_t got) {
  throw_invalid("expected " + expected() + ", got " + std::to_string(got));
}

std::string list_name(std::initializer_list<NameOf> types) {
  std::string out = "(";
  for (const NameOf type : types) out += (out.size() > 1 ? ", " : "") + type();
  return out + ")";
}

void wrong_count(ErrorPrefix what, std::initializer_list<NameOf> types, size_t got) {
  throw_invalid(what.str() + " takes " + std::to_string(types.size()) + " arguments " + list_name(types) +
                ", got " + std::to_string(got));
}

void argument_failed(ErrorPrefix what, size_t place, const Error& error) {
  throw Error(error.kind(), what.str() + " argument " + std::to_string(place) + ": " + error.message());
}

}  // namespace internal

DType Codec<DType>::from(Value v) {
  const auto text = internal::take<std::string>(v, [] { return std::string("the name of a dtype"); });
  std::string known;
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto t = static_cast<DType>(i);
    if (text == troupe::name(t)) return t;
    known += (i ? ", " : "") + std::string(troupe::name(t));
  }
  throw_invalid("expected the name of a dtype (" + known + "), got \"" + text + "\"");
}

Value Codec<Scalar>::to(const Scalar& x) {
  if (x.is_boolean()) return x.to<bool>();
  return x.is_floating() ? Value(x.to<double>()) : Value(x.to<int64_t>());
}
Scalar Codec<Scalar>::from(const Value& v) {
  if (const auto* flag = v.get_if<bool>()) return *flag;
  if (const auto* whole = v.get_if<int64_t>()) return *whole;
  if (const auto* real = v.get_if<double>()) return *real;
  internal::mismatch(&name, v);
}

Value Codec<Shape>::to(const Shape& shape) { return ValueList(shape.begin(), shape.end()); }
Shape Codec<Shape>::from(Value v) {
  Shape shape;
  if (const auto* size = v.get_if<int64_t>()) return {*size};
  for (const Value& size : internal::take<ValueList>(v, &name)) {
    if (const auto* n = size.get_if<int64_t>())
      shape.push_back(*n);
    else
      internal::mismatch(&name, size);
  }
  return shape;
}

Value Codec<Generator>::to(const Generator& generator) {
  const auto [seed, counter] = generator.position();
  return ValueList{Value(static_cast<int64_t>(seed)), Value(static_cast<int64_t>(counter))};
}
Generator Codec<Generator>::from(Value v) {
  auto list = internal::take<ValueList>(v, &name);
  if (list.size() != 2) internal::mismatch(&name, Value(std::move(list)));
  Generator generator;
  generator.set_position(
      {Codec<uint64_t>::from(std::move(list[0])), Codec<uint64_t>::from(std::move(list[1]))});
  return generator;
}

Value Codec<Error>::to(const Error& e) {
  return ValueList{Value(static_cast<int64_t>(e.kind())), Value(e.message()), Value(e.worker()),
                   Codec<std::vector<std::string>>::to(e.trail())};
}
Error Codec<Error>::from(Value v) {
  auto list = internal::take<ValueList>(v, &name);
  if (list.size() != 4) internal::mismatch(&name, Value(list));
  const auto kind = Codec<uint8_t>::from(list[0]);
  if (kind >= kErrorKindCount) throw_invalid("expected an error, got kind " + std::to_string(kind));
  Error e = Error(static_cast<ErrorKind>(kind), Codec<std::string>::from(list[1]))
                .with_worker(Codec<std::string>::from(list[2]));
  for (auto& call : Codec<std::vector<std::string>>::from(list[3]))
    e = std::move(e).crossing(std::move(call));
  return e;
}

}  // namespace troupe
