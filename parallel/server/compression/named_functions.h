// Functions of programs that options name: "median", or with a number, "powersgd(2)".
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/mutex.h"

namespace troupe::internal::parallel {

/// A name, and the number in parentheses behind it. `invalid`, beginning with `what`, if it is none.
std::pair<std::string, std::optional<double>> name_and_number(const std::string& text,
                                                              const std::string& what);
/// `invalid` for a name that no text can have: letters, digits and _, and a letter first.
void check_function_name(const std::string& name, const std::string& what);

/// Makers by name: from the number to F. Thread-safe.
template <class F>
class NamedFunctions {
 public:
  using Make = std::function<F(std::optional<double> number)>;
  NamedFunctions(std::string what, std::map<std::string, Make> first)
      : what_(std::move(what)), make_(std::move(first)) {}

  void add(const std::string& name, Make make) {
    check_function_name(name, what_);
    const Lock lock(mutex_);
    if (!make_.emplace(name, std::move(make)).second)
      throw_invalid(what_ + " there is a \"" + name + "\" already: give yours another name");
  }
  /// Null: nobody has that name.
  F find(const std::string& text) const {
    const auto [name, number] = name_and_number(text, what_);
    Make make;
    {
      const Lock lock(mutex_);
      const auto at = make_.find(name);
      if (at == make_.end()) return nullptr;
      make = at->second;
    }
    return make(number);
  }
  /// "clipped_mean, median", for errors.
  std::string names() const {
    std::string all;
    const Lock lock(mutex_);
    for (const auto& [name, make] : make_) all += (all.empty() ? "" : ", ") + name;
    return all;
  }

 private:
  const std::string what_;
  mutable Mutex mutex_;
  std::map<std::string, Make> make_ TROUPE_GUARDED_BY(mutex_);
};

}  // namespace troupe::internal::parallel
