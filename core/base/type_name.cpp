#include "core/base/type_name.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

namespace troupe {

std::string readable_name(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> readable(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), std::free);
  return readable ? readable.get() : type.name();
}

std::string class_name(const std::type_info& type) {
  const std::string whole = readable_name(type);
  const size_t colon = whole.substr(0, whole.find('<')).rfind("::");
  return colon == std::string::npos ? whole : whole.substr(colon + 2);
}

}  // namespace troupe
