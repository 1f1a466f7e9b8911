#include "autograd/distributed/optim/parameter_filter.h"

#include <fmt/format.h>

namespace troupe::optim {

bool name_fits(std::string_view name, std::string_view form) {
  size_t at = 0, in_form = 0;
  size_t star = std::string_view::npos, from = 0;  // the last "*", and where the text behind it begins
  while (at < name.size()) {
    if (in_form < form.size() && form[in_form] == '*') {
      star = in_form++, from = at;
    } else if (in_form < form.size() && form[in_form] == name[at]) {
      ++in_form, ++at;
    } else if (star != std::string_view::npos) {
      in_form = star + 1, at = ++from;  // it stands for one letter more
    } else {
      return false;
    }
  }
  while (in_form < form.size() && form[in_form] == '*') ++in_form;
  return in_form == form.size();
}

ParameterFilter::ParameterFilter(const char* name) : names_{name} {}
ParameterFilter::ParameterFilter(std::initializer_list<std::string> names) : names_(names) {}
ParameterFilter::ParameterFilter(std::vector<std::string> names) : names_(std::move(names)) {}
ParameterFilter::ParameterFilter(const ParameterFilter&) = default;
ParameterFilter::ParameterFilter(ParameterFilter&&) noexcept = default;
ParameterFilter& ParameterFilter::operator=(const ParameterFilter&) = default;
ParameterFilter& ParameterFilter::operator=(ParameterFilter&&) noexcept = default;
ParameterFilter::~ParameterFilter() = default;
std::vector<std::string> ParameterFilter::names() && { return std::move(names_); }
std::function<bool(const std::string& name, const Shape& shape)> ParameterFilter::chosen() && {
  return std::move(chosen_);
}

std::string ParameterFilter::str() const {
  return chosen_ ? "those of a function" : fmt::format("{}", fmt::join(names_, ", "));
}

}  // namespace troupe::optim
