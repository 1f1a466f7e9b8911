#include "rref/name_table.h"

#include <algorithm>

#include "core/base/shown.h"

namespace troupe::internal::rref {

std::pair<std::string, std::string> split_name(const std::string& full) {
  const size_t slash = full.find('/');
  if (slash == 0 || slash == std::string::npos)
    throw_invalid("[names] '" + shown(full) +
                  "' does not say on which worker: expected WORKER/NAME, as in w1/server");
  std::string name = full.substr(slash + 1);
  check_name(name);
  return {full.substr(0, slash), std::move(name)};
}

void check_name(const std::string& name) {
  const bool fits = !name.empty() && name.size() <= kMaxName &&
                    std::all_of(name.begin(), name.end(),
                                [](unsigned char c) { return c > 0x20 && c != 0x7f && c != '/'; });
  if (!fits)
    throw_invalid("[names] '" + shown(name, kMaxName) + "' (" + std::to_string(name.size()) +
                  " bytes) cannot be a name: expected 1 to " + std::to_string(kMaxName) +
                  " bytes, no spaces, no control characters and no '/'");
}

void NameTable::give(const std::string& worker, const std::string& name, HandlePtr ref) {
  const auto at = names_.find(name);
  if (at != names_.end())
    throw_invalid("[names] " + worker + "/" + name + " is " + label(*at->second) +
                  " already: drop_name() it, or give " + label(*ref) + " another name");
  names_.emplace(name, std::move(ref));
}

HandlePtr NameTable::find(const std::string& name) const {
  const auto at = names_.find(name);
  return at == names_.end() ? nullptr : at->second;
}

HandlePtr NameTable::drop(const std::string& worker, const std::string& name) {
  auto node = names_.extract(name);
  if (node.empty()) throw unknown(worker, name);
  return std::move(node.mapped());
}

std::vector<HandlePtr> NameTable::drop_all(const std::function<bool(const ObjectId&)>& which) {
  std::vector<HandlePtr> dropped;
  std::erase_if(names_, [&](auto& named) {
    if (!which(named.second->id())) return false;
    dropped.push_back(std::move(named.second));
    return true;
  });
  return dropped;
}

Error NameTable::unknown(const std::string& worker, const std::string& name) const {
  std::vector<std::string> known;
  for (const auto& [n, ref] : names_) known.push_back(n);
  const std::string near = nearest(name, known);
  constexpr size_t kShown = 8;
  std::string list;
  size_t shown = 0;
  const auto show = [&](const std::string& n) {
    list += (list.empty() ? "" : ", ") + n + " (" + names_.at(n)->type() + ")";
    ++shown;
  };
  if (!near.empty()) show(near);
  for (const auto& n : known)
    if (shown < kShown && n != near) show(n);
  if (shown < known.size()) list += " and " + std::to_string(known.size() - shown) + " more";
  return Error(ErrorKind::invalid, "[names] " + worker + " has nothing named '" + name +
                                       "'; it has: " + (list.empty() ? "no names" : list));
}

std::vector<NameTable::Call> NameTable::wait(const std::string& name, const Call& lookup, TimePoint now) {
  std::vector<Call> late;
  if (waiting_.size() >= prune_at_) {
    late = take([&](const std::string&, const Call& c) { return c->deadline() <= now; });
    prune_at_ = std::max<size_t>(64, 2 * waiting_.size());
  }
  waiting_.emplace_back(name, lookup);
  return late;
}

std::vector<NameTable::Call> NameTable::arrived(const std::string& name) {
  return take([&](const std::string& n, const Call&) { return n == name; });
}

std::vector<NameTable::Call> NameTable::lose(WorkerId worker) {
  return take([&](const std::string&, const Call& c) { return c->from() == worker; });
}

std::vector<NameTable::Call> NameTable::take(
    const std::function<bool(const std::string&, const Call&)>& which) {
  std::vector<Call> taken;
  std::erase_if(waiting_, [&](const auto& w) {
    if (!which(w.first, w.second)) return false;
    taken.push_back(w.second);
    return true;
  });
  return taken;
}

}  // namespace troupe::internal::rref
