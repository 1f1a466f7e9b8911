// A graph of ONNX that is being made of tensors and operators.
#pragma once
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "core/tensor/tensor.h"
#include "troupe/onnx/message.h"

namespace troupe::internal::onnx {

using Attribute = std::pair<std::string, std::variant<int64_t, double, std::string, std::vector<int64_t>>>;

/// Nodes in the order in which they compute. Tensors are known by what they are: one that no node gave is a
/// constant.
class OnnxGraph {
 public:
  explicit OnnxGraph(std::string name) : name_(std::move(name)) {}

  void add_input(const std::string& name, const Tensor& t);
  /// A constant has that name if it comes to be used.
  void name_constant(const Tensor& t, const std::string& name);
  /// What nodes call a tensor. A new constant is written here.
  std::string name_of(const Tensor& t);
  /// A list of integers, or one, as a constant.
  std::string ints(const std::vector<int64_t>& values);
  std::string number(double value, DType dtype);
  /// Adds a node; the name of its result, or of the first of `results`.
  std::string node(const std::string& type, const std::vector<std::string>& inputs,
                   const std::vector<Attribute>& attributes = {}, int results = 1);
  /// From now on the tensor is what that name stands for.
  void give(const Tensor& t, const std::string& name);
  void add_output(const std::string& name, const Tensor& t);
  /// A whole model.
  std::string model() const;

 private:
  std::string constant(const std::string& name, const Tensor& t);
  std::string name_;
  std::unordered_map<const TensorImpl*, std::string> names_, known_;
  Tensors kept_;  // as long as they have names, no other tensor is where they are
  std::string nodes_, constants_, inputs_, outputs_;
  int64_t count_ = 0;
};

/// The number of an element type.
int64_t type_number(DType dtype);

}  // namespace troupe::internal::onnx
