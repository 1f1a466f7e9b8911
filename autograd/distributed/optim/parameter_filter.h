// Which parameters of actors are meant, by their names or by a function.
#pragma once
#include <concepts>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tensor/shape.h"

namespace troupe::optim {

/// Whether `name` is of that form: "*" stands for any text, also none.
bool name_fits(std::string_view name, std::string_view form);

/// Parameters by the names that nn::remote_parameters() gives them, where "*" stands for any text:
/// {"*.bias", "norm*"}; or those of which a function of name and shape is true:
///
///   [](const std::string&, const Shape& shape) { return shape.rank() < 2; }  // biases and norms
class ParameterFilter {
 public:
  ParameterFilter(const char* name);
  ParameterFilter(std::initializer_list<std::string> names);
  ParameterFilter(std::vector<std::string> names);
  template <std::predicate<const std::string&, const Shape&> F>
  ParameterFilter(F chosen) : chosen_(std::move(chosen)) {}
  ParameterFilter(const ParameterFilter&);
  ParameterFilter(ParameterFilter&&) noexcept;
  ParameterFilter& operator=(const ParameterFilter&);
  ParameterFilter& operator=(ParameterFilter&&) noexcept;
  ~ParameterFilter();

  /// "*.bias, norm*", or "those of a function".
  std::string str() const;
  /// Empty if there is a function.
  const std::vector<std::string>& names() const& { return names_; }
  std::vector<std::string> names() &&;
  /// Null if there are names.
  const std::function<bool(const std::string& name, const Shape& shape)>& chosen() const& { return chosen_; }
  std::function<bool(const std::string& name, const Shape& shape)> chosen() &&;

 private:
  std::vector<std::string> names_;
  std::function<bool(const std::string& name, const Shape& shape)> chosen_;
};

}  // namespace troupe::optim
