#include "troupe/onnx/onnx_graph.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "ops/view.h"

namespace troupe::internal::onnx {

namespace {

// Numbers of fields, of messages and of element types: onnx.proto, version 9 of the representation.
Message value_info(const std::string& name, const Tensor& t) {
  Message shape;
  for (int64_t i = 0; i < t.dim(); ++i)
    shape.message(1, Message().number(1, static_cast<uint64_t>(t.size(i))));
  Message tensor;
  tensor.number(1, static_cast<uint64_t>(type_number(t.dtype()))).message(2, shape);
  return Message().text(1, name).message(2, Message().message(1, tensor));
}

Message attribute(const Attribute& a) {
  Message m;
  m.text(1, a.first);
  if (const auto* i = std::get_if<int64_t>(&a.second))
    return m.number(3, static_cast<uint64_t>(*i)).number(20, 2);
  if (const auto* f = std::get_if<double>(&a.second)) return m.real(2, static_cast<float>(*f)).number(20, 1);
  if (const auto* s = std::get_if<std::string>(&a.second)) return m.text(4, *s).number(20, 3);
  for (const int64_t v : std::get<std::vector<int64_t>>(a.second)) m.number(8, static_cast<uint64_t>(v));
  return m.number(20, 7);
}

}  // namespace

int64_t type_number(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return 1;
    case DType::uint8:
      return 2;
    case DType::int32:
      return 6;
    case DType::int64:
      return 7;
    case DType::boolean:
      return 9;
    case DType::float16:
      return 10;
    case DType::float64:
      return 11;
    case DType::bfloat16:
      return 16;
  }
  throw_invalid("[onnx] an element type that there is none of");
}

void OnnxGraph::add_input(const std::string& name, const Tensor& t) {
  inputs_ += Message().message(11, value_info(name, t)).bytes();
  give(t, name);
}

void OnnxGraph::add_output(const std::string& name, const Tensor& t) {
  const std::string computed = name_of(t);
  nodes_ += Message().message(1, Message().text(1, computed).text(2, name).text(4, "Identity")).bytes();
  outputs_ += Message().message(12, value_info(name, t)).bytes();
}

void OnnxGraph::name_constant(const Tensor& t, const std::string& name) { known_.emplace(t.impl(), name); }

void OnnxGraph::give(const Tensor& t, const std::string& name) {
  names_[t.impl()] = name;
  kept_.push_back(t);
}

std::string OnnxGraph::name_of(const Tensor& t) {
  if (const auto at = names_.find(t.impl()); at != names_.end()) return at->second;
  const auto known = known_.find(t.impl());
  const std::string name =
      constant(known != known_.end() ? known->second : fmt::format("constant_{}", count_++), t);
  give(t, name);
  return name;
}

std::string OnnxGraph::constant(const std::string& name, const Tensor& t) {
  const Tensor whole = ops::contiguous(t.detach().data_on(cpu));
  Message m;
  for (int64_t i = 0; i < whole.dim(); ++i) m.number(1, static_cast<uint64_t>(whole.size(i)));
  m.number(2, static_cast<uint64_t>(type_number(whole.dtype()))).text(8, name);
  const size_t bytes = static_cast<size_t>(whole.numel()) * item_size(whole.dtype());
  m.text(9, {bytes ? reinterpret_cast<const char*>(whole.bytes()) : "", bytes});
  constants_ += Message().message(5, m).bytes();
  return name;
}

std::string OnnxGraph::ints(const std::vector<int64_t>& values) {
  return constant(fmt::format("ints_{}", count_++),
                  values.empty() ? empty({0}, int64) : tensor(values, TensorOptions{int64}));
}

std::string OnnxGraph::number(double value, DType dtype) {
  return constant(fmt::format("number_{}", count_++), full({}, value, dtype));
}

std::string OnnxGraph::node(const std::string& type, const std::vector<std::string>& inputs,
                            const std::vector<Attribute>& attributes, int results) {
  Message m;
  for (const std::string& in : inputs) m.text(1, in);
  const std::string first = fmt::format("{}_{}", type, count_++);
  for (int i = 0; i < results; ++i) m.text(2, i ? fmt::format("{}_{}", first, i) : first);
  m.text(3, first).text(4, type);
  for (const Attribute& a : attributes) m.message(5, attribute(a));
  nodes_ += Message().message(1, m).bytes();
  return first;
}

std::string OnnxGraph::model() const {
  const std::string graph = nodes_ + Message().text(2, name_).bytes() + constants_ + inputs_ + outputs_;
  Message m;
  m.number(1, 9).text(2, "troupe").text(7, graph);
  return m.message(8, Message().text(1, "").number(2, 20)).bytes();
}

}  // namespace troupe::internal::onnx
