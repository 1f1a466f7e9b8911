// Names of C++ types for people.
#pragma once
#include <string>
#include <typeinfo>

namespace troupe {

/// "std::runtime_error", "demo::Layer<int>".
std::string readable_name(const std::type_info& type);
/// The same without the namespaces and classes around it: "runtime_error", "Layer<int>".
std::string class_name(const std::type_info& type);

}  // namespace troupe
