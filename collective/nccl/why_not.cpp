#include "collective/nccl/why_not.h"

#include <fmt/format.h>

#include <algorithm>

namespace troupe::internal::collective {

std::string library_version_text(int64_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string why_apart(const NamedPlace& a, const NamedPlace& b) {
  if (a.place.version != b.place.version)
    return fmt::format(
        "{} has NCCL {} and {} has NCCL {}: give both one version (TROUPE_NCCL names the file)", a.name,
        library_version_text(a.place.version), b.name, library_version_text(b.place.version));
  if (a.place.gpu == b.place.gpu)
    return fmt::format("{} and {} are one GPU: give each worker a GPU of its own (CUDA_VISIBLE_DEVICES)",
                       a.name, b.name);
  return "";
}

// NCCL's own syntax: names with commas between them, each with an optional :port. "=" before the first: the
// whole name, not its beginning; "^": all but these.
std::string why_no_interface(std::string_view wanted, const std::vector<std::string>& interfaces) {
  if (wanted.empty()) return "";
  std::string_view rest = wanted;
  const bool others = rest.starts_with('^');
  if (others) rest.remove_prefix(1);
  const bool whole = rest.starts_with('=');
  if (whole) rest.remove_prefix(1);
  std::vector<std::string> names;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view name = rest.substr(0, comma);
    names.emplace_back(name.substr(0, name.find(':')));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  const auto is_meant = [&](const std::string& interface) {
    const bool named = std::ranges::any_of(
        names, [&](const std::string& n) { return whole ? interface == n : interface.starts_with(n); });
    return named != others;
  };
  if (std::ranges::any_of(interfaces, is_meant)) return "";
  return fmt::format(
      "NCCL_SOCKET_IFNAME is \"{}\", and this host has no such interface: unset it, or set it to one of {}",
      wanted, fmt::join(interfaces, ", "));
}

}  // namespace troupe::internal::collective
