// Modules that are no layers one after the other.
#pragma once
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "nn/module.h"

namespace troupe::nn {

/// Modules by number: their names are "0", "1", ... What calls them is up to who has the list:
///
///   struct Net : nn::Module {
///     Tensor operator()(Tensor x) {
///       for (size_t i = 0; i < blocks.size(); ++i) x = blocks.as<Block>(i)(x);
///       return x;
///     }
///     void members(nn::Members& m) override { m("blocks", blocks); }
///     nn::ModuleList blocks{Block(64), Block(64)};
///   };
///
/// A copy shares the modules.
class ModuleList final : public Module {
 public:
  ModuleList() = default;
  template <class... M>
  requires(sizeof...(M) > 0 && (std::is_base_of_v<Module, std::remove_cvref_t<M>> && ...) &&
           !(sizeof...(M) == 1 && (std::is_same_v<ModuleList, std::remove_cvref_t<M>> && ...)))  //
      explicit ModuleList(M&&... modules) {
    (add(std::forward<M>(modules)), ...);
  }

  template <class M>
  requires(std::is_base_of_v<Module, std::remove_cvref_t<M>>)  //
      ModuleList& add(M&& module) {
    return add(std::shared_ptr<Module>(std::make_shared<std::remove_cvref_t<M>>(std::forward<M>(module))));
  }
  /// `invalid` without one.
  ModuleList& add(std::shared_ptr<Module> module);
  size_t size() const { return modules_.size(); }
  Module& operator[](size_t i) & { return *modules_.at(i); }
  Module& operator[](size_t i) && = delete;  // name the list: its modules go with its last copy
  /// `invalid`, saying what it is, if it is no M.
  template <class M>
  M& as(size_t i) {
    if (auto* m = dynamic_cast<M*>(modules_.at(i).get())) return *m;
    refuse_type(i);
  }
  void members(Members& m) override {
    for (size_t i = 0; i < modules_.size(); ++i) m(std::to_string(i), *modules_[i]);
  }

 protected:
  std::shared_ptr<Module> held_child(const std::string& name) override;
  void hold_child(const std::string& name, const std::shared_ptr<Module>& module) override;

 private:
  [[noreturn]] void refuse_type(size_t i) const;
  std::vector<std::shared_ptr<Module>> modules_;
};

/// The number that is the name of a child in a list; SIZE_MAX: it is none.
size_t place_of(const std::string& name);

}  // namespace troupe::nn
