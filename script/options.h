// What the functions of scripts take: options by name, and workers.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/entry/entry.h"
#include "rref/here.h"

namespace troupe::script {

/// Options by name, each taken once; what is left over is refused with the nearest name.
class Options {
 public:
  /// `what`: the words before an option, for errors: "[pipeline]".
  Options(ValueMap given, std::string what) : given_(std::move(given)), what_(std::move(what)) {}
  template <class T>
  T take(const std::string& name, T standard) {
    known_.push_back(name);
    auto node = given_.extract(name);
    if (node.empty()) return standard;
    try {
      return Codec<T>::from(fitted(std::move(node.mapped()), Codec<T>::name()));
    } catch (const Error& e) {
      throw_invalid(what_ + " option " + name + ": " + e.message());
    }
  }
  /// Those that are left, for somebody else.
  ValueMap rest() { return std::exchange(given_, {}); }
  /// `invalid` if one is left.
  void end() const;

 private:
  ValueMap given_;
  std::string what_;
  std::vector<std::string> known_;
};

/// The workers that a value names: "w1", or a list of such. `what`: as of Options.
std::vector<Place> places_of(const Value& workers, const std::string& what);

}  // namespace troupe::script
